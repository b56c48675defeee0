"""Serve a test picture by gst-rtsp-server: PORT USER:PASSWORD LAUNCH. Run by a Python that has gi."""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

Gst.init(None)
port, login, launch = sys.argv[1:]
server = GstRtspServer.RTSPServer()
server.set_service(port)
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(launch)
factory.set_shared(True)
user, _, password = login.partition(":")
auth, token = GstRtspServer.RTSPAuth(), GstRtspServer.RTSPToken()
token.set_string("media.factory.role", "user")
auth.set_supported_methods(2)  # digest
auth.add_digest(user, password, token)
server.set_auth(auth)
permissions = GstRtspServer.RTSPPermissions()
for permission in ("media.factory.access", "media.factory.construct"):
    permissions.add_permission_for_role("user", permission, True)
factory.set_permissions(permissions)
server.get_mount_points().add_factory("/stream", factory)
server.attach(None)
print("ready", flush=True)
GLib.MainLoop().run()
