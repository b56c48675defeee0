"""`edgerun eim` and `NAME.eim`: a bundle that speaks the protocol of Edge Impulse's Linux runners on a Unix socket.

Edge Impulse's clients start a file `NAME.eim` with the path of a socket, connect to it, and send JSON objects: `hello`
for the parameters of the model, then `classify` for each sample. `parameters` describes a bundle in their terms,
`features` converts what they send into raw samples, `results` converts answers into what they expect, `messages` splits
and encodes the JSON, `shared_memory` is the block through which newer clients pass samples, `session` answers one
client, `server` holds the socket, and `archive` reads the bundle out of a `NAME.eim`.
"""

MEMBER = "bundle.edge.zip"
"""The name of the bundle in a `NAME.eim`."""
