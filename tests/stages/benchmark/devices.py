"""Devices behind the rig that are slow with some files, or disturbed at first."""

from __future__ import annotations

from tests.fleet.devices.rig import Rig

SLOW = """
import ai_edge_litert.interpreter as litert, time
run = litert.Interpreter.invoke
def invoke(self):
    if {slow}(self.get_input_details()[0]["dtype"].__name__):
        time.sleep({seconds})
    return run(self)
litert.Interpreter.invoke = invoke
"""
"""A board whose kernels of one type are slow, as where there is no dot product of bytes."""
MOOD = """
import json, pathlib, sys
moods = pathlib.Path(sys.argv[1])
*others, mood = moods.read_text().split("\\n")[::-1]
moods.write_text("\\n".join(others[::-1]))
for line in sys.stdin:
    if line.startswith("{"):
        found = json.loads(line)
        line = json.dumps({**found, "why": [mood] if mood else []}) + "\\n"
    sys.stdout.write(line)
"""
"""Takes the next of the moods, which is why the device says that it was disturbed, and puts it into the answer."""


def slowed(rig: Rig, number: int, dtypes: str, seconds: float, more: str = "") -> None:
    """From now on, files whose input is of these types take longer on this device."""
    folder = rig.device(number) / "slow"
    folder.mkdir(exist_ok=True)
    text = SLOW.format(slow=f"{dtypes.split(',')!r}.__contains__", seconds=seconds)
    (folder / "sitecustomize.py").write_text(text)
    rig.setting(number, f"export PYTHONPATH={folder}\n{more}")


def first_disturbed(rig: Rig, number: int) -> str:
    """Lines for a device that is hot in its first benchmark, and quiet the next.

    All devices of the rig share one machine with the tests, so each would say that it was disturbed.
    """
    home = rig.device(number)
    (home / "mood.py").write_text(MOOD)
    (home / ".moods").write_text("it was 85 °C hot\n")
    return f"""case "$SSH_ORIGINAL_COMMAND" in *" bench "*)
  code=$( {{ /bin/sh -c "$SSH_ORIGINAL_COMMAND"; echo $? >&3; }} 3>&1 >{home}/.answer )
  python3 {home}/mood.py {home}/.moods <{home}/.answer
  exit $code;;
esac"""
