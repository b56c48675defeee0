"""Programs that stand for those of a device: real ffmpeg makes their pictures, and their arguments are checked."""

from __future__ import annotations

from pathlib import Path

from tests import requirements

V4L2 = """#!/bin/sh
# Stands for an ffmpeg with a camera: what was requested of Video4Linux goes to lavfi's test picture.
[ "$1" = -version ] && exec {ffmpeg} "$@"
printf "%s\\n" "$*" >> {log}
size=64x48 rate=15
while [ "$1" != -f ]; do before="$before $1"; shift; done
[ "$2" = v4l2 ] || {{ echo "[error] $2: not v4l2" >&2; exit 1; }}
while [ "$1" != -i ]; do
    case "$1" in -video_size) size=$2;; -framerate) rate=$2;; esac
    shift
done
shift 2
exec {ffmpeg} $before -re -f lavfi -i testsrc=size=$size:rate=$rate "$@"
"""
RPICAM = """#!/bin/sh
# Stands for rpicam-vid: writes uncompressed YUV pictures in full range, whose rows fill a multiple of 64 pixels.
printf "%s\\n" "$*" >> {log}
[ -e {log}.gone ] && {{ echo "ERROR: *** no cameras available ***" >&2; exit 255; }}
while [ $# -gt 0 ]; do
    case "$1" in --width) width=$2;; --height) height=$2;; --framerate) rate=$2;; esac
    shift
done
row=$(( (width + 63) / 64 * 64 ))
exec {ffmpeg} -v quiet -re -f lavfi -i color=c=0xC86432:size=${{width}}x$height:rate=$rate \\
    -vf scale=out_range=pc:out_color_matrix=bt601,format=yuvj420p,pad=$row:$height:0:0:color=green -f rawvideo -
"""
ARECORD = """#!/bin/sh
# Stands for arecord: a tone of raw samples.
printf "%s\\n" "$*" >> {log}
[ -e {log}.gone ] && {{ echo "arecord: main:831: audio open error: $(cat {log}.gone)" >&2; exit 1; }}
[ -e {log}.rate ] && echo "Warning: rate is not accurate (requested = 8000Hz, got = 48000Hz)" >&2
while [ $# -gt 0 ]; do
    case "$1" in -r) rate=$2;; -c) channels=$2;; esac
    shift
done
exec {ffmpeg} -v quiet -re -f lavfi -i sine=frequency=440:sample_rate=$rate -ac $channels -f s16le -flush_packets 1 -
"""


def install(folder: Path, name: str, text: str) -> Path:
    """Write a program into a folder. Returns the file to which it writes its arguments, a line for each start."""
    log = folder / f"{name}.log"
    program = folder / name
    program.write_text(text.format(ffmpeg=requirements.program("ffmpeg"), log=log))
    program.chmod(0o755)
    return log
