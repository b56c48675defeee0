"""Every command that the pages show, and what its test does with it: a new one must be listed here.

QUICK commands are run for real by `make docs`, LONG ones by `make long`, page by page, in a folder that `scene.py` lays
out. ELSEWHERE are those that cannot run here, with the reason; of these the words are parsed.
"""

from __future__ import annotations

SUBSTITUTIONS = {
    "configs/digits.yaml": "configs/tiny.yaml",
    "configs/mine.yaml": "configs/tiny.yaml",
    "artifacts/digits": "artifacts/tiny",
    "artifacts/mine": "artifacts/tiny",
    "bundles/digits-": "bundles/tiny-",
    "/elsewhere": "elsewhere",
    "edge/bin/python": "python",
}
"""Paths of a config, of a run and its bundles, and of Python: all that differs from what the page says."""

INFO = "artifacts/digits/bundles/digits-tflite-1.0.0.edge.zip"
RUNNER = "python artifacts/digits/bundles/edgerun.pyz"
DEVICE = "edge/bin/python edgerun.pyz"
BUNDLE = "digits-tflite-1.0.0.edge.zip"
CAMERA = "pictures-tflite-1.0.0.edge.zip"
SOUNDS = "doorbell-tflite-1.0.0.edge.zip"
MICROPHONE = "arecord -f S16_LE -r 16000 -c 1 | "
RECORDING = "ffmpeg -loglevel error -i evening.mp3 -f s16le -ac 1 -ar 16000 - | "

QUICK = {
    "source .venv/bin/activate",
    "python -m edgekit.device.pyz edgerun-small.pyz --small",
    "edgekit status artifacts/digits",
    "edgekit report artifacts/digits",
    "edgekit compare artifacts/digits artifacts/mine",
    f"{RUNNER} info {INFO}",
    f"{RUNNER} selftest {INFO}",
    f"{RUNNER} predict {INFO} sample.png",
    "python sample.py",
    "python samples.py",
    "python make_meter.py",
    "python make_shapes.py",
    "python make_shards.py",
    "edgekit run birds.yaml --dry-run",
    "edgekit run configs/digits.yaml --parallel 2",
    "edgekit init shapes --data shapes/",
    "edgekit run shapes.yaml --dry-run",
    "edgekit run configs/digits.yaml --set prune.ratio=0.4 --dry-run",
    "edgekit run configs/mine.yaml --dry-run",
    "edgekit run configs/mine.yaml",
    "edgekit run configs/digits.yaml --out /elsewhere",
    "edgekit run configs/digits.yaml --cache shared/",
    "edgekit run configs/digits.yaml --cache shared/ --out /elsewhere",
    "edgekit cache check shared/",
    "edgekit cache prune shared/ --older-than 30",
    "edgekit run configs/cifar10.yaml --dry-run",
    "edgekit init doorbell --data sounds/",
    "edgekit init meter --task regression --data meter.npz",
    "edgekit run doorbell.yaml --dry-run",
    "edgekit run meter.yaml --dry-run",
    "edgekit run mine.yaml --dry-run",
    "edgekit run worn.yaml --dry-run",
    "edgekit init messages --data messages.tsv",
    "edgekit init cells --data cells.zip",
    "edgekit run messages.yaml --dry-run",
    "edgekit run reviews.yaml --dry-run",
    "edgekit run colleague.yaml --dry-run",
    "edgekit run street.yaml --dry-run",
    "edgekit run flowers.yaml --dry-run",
    "python forest.py",
    "edgekit bundle forest.onnx --golden flowers.csv",
    "python edgerun.pyz predict forest-onnx-1.0.0.edge.zip flowers.csv",
    f"{DEVICE} doctor {BUNDLE}",
    f"{DEVICE} selftest {BUNDLE}",
    f"{DEVICE} predict {BUNDLE} sample.npy",
    f"{DEVICE} predict {BUNDLE} samples/ --json",
    f"{DEVICE} bench {BUNDLE}",
    "ffmpeg -loglevel error -i cam.mp4 -f rawvideo -pix_fmt rgb24 - | "
    f"{DEVICE} predict {CAMERA} --stream rgb24 --size 640x480",
    "PYTHONPATH=edgerun.pyz edge/bin/python use.py",
    f"edgerun info {INFO} --json",
    f"edgerun verify {INFO}",
    "edgekit trust init trust --root root",
    "edgekit trust add trust anna anna.pub --root root",
    f"edgekit sign {INFO} --key anna --trust trust",
    f"edgekit verify {INFO} --trust trust",
    "edgerun trust trust --home device",
    f"edgerun verify {INFO} --trust device/trust",
    "edgekit trust add trust bert bert.pub --root root",
    "edgekit trust rotate trust --threshold 2 --root root",
    f"edgekit sign {INFO} --key anna --trust trust --days 90",
    f"edgekit sign {INFO} --key bert --trust trust --cosign",
    "edgekit trust rotate trust anna=anna-2.pub --root root",
    "edgekit trust revoke trust bert --root root",
    "edgekit trust revoke trust --below digits=1795646112 --root root",
    "edgekit trust renew trust --root root",
    f"edgerun predict {INFO} pictures/ --batch 8",
    f"edgerun predict {INFO} pictures/ --metrics model.prom",
    f"edgerun predict {INFO} pictures/ --watch",
    f"edgerun predict {INFO} pictures/ --report reports/march.json",
    f"edgerun predict {INFO} pictures/ --report reports/september.json",
    f"edgerun predict {INFO} pictures/ --keep kept/ --keep-per-day 50",
    "edgekit compare reports/march.json reports/september.json",
    "edgekit field report reports/",
    "edgekit field pack kept/ uncertain.npz",
    f"edgerun predict {INFO} pictures/ --watch",
    f"edgekit load {INFO} --scenario single_stream --seconds 2 --json",
    "edgekit bundle pretrainedResnet_quant.tflite "
    "--labels airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck --golden pictures/",
    "edgekit export triton artifacts/digits/bundles --out for-triton --backend python",
    "edgekit export ovms artifacts/digits/bundles/digits-onnx-1.0.0.edge.zip --out for-ovms",
    f"edgerun bench {INFO} --report boards/pi-5.json",
    f"edgerun live {INFO} --from cam.mp4 --rule label=3 threshold=0.6",
    f"edgerun live {INFO} --from cam.mp4 --no-realtime --record answers.jsonl",
    f"edgerun live {INFO} --replay answers.jsonl --rule label=3 threshold=0.6",
    f"edgerun bench {INFO} artifacts/digits/bundles/digits-onnx-1.0.0.edge.zip",
    "edgekit export kserve artifacts/digits/bundles --out for-kserve --storage-uri s3://bucket/digits "
    "--image registry.example/edgekit:1.0.0",
    "edgekit export tensorrt artifacts/digits/bundles/digits-onnx-1.0.0.edge.zip --out for-tensorrt",
    "edgekit export prometheus for-prometheus --slo-p99 50ms --availability 99.9 --scrape localhost:8002",
    "edgekit export grafana for-grafana --slo-p99 50ms",
    "python classifier.py",
    "edgekit bundle classifier.onnx --golden text-0.npz --golden text-1.npz --labels good,bad "
    "--input-range input_ids=0,999 --input-range attention_mask=0,1",
    "python edgerun.pyz predict classifier-onnx-1.0.0.edge.zip text-0.npz",
    "make help",
    "python gesture.py",
    "edgekit bundle gesture/model.onnx --golden walk.csv --columns ax,ay,az --labels circle,wave,rest,other "
    "--name gesture",
    "python edgerun.pyz predict gesture-onnx-1.0.0.edge.zip walk.csv",
    "python edgerun.pyz predict gesture-onnx-1.0.0.edge.zip --stream csv < walk.csv",
}

LONG = {
    "edgekit run configs/digits.yaml --set prune.ratio=0.4",
    "edgekit run configs/digits.yaml --from quantize",
    "edgekit run configs/digits.yaml --mlflow sqlite:///mlflow.db",
    "edgekit report artifacts/digits --mlflow sqlite:///mlflow.db",
    "edgekit run doorbell.yaml",
    "edgekit reproduce artifacts/digits/bundles/digits-onnx-1.0.0.edge.zip",
    f"edgekit load {INFO} --max-rate --p99-ms 5",
    f"{DEVICE} bench {BUNDLE} --compare",
}

SERVES = "serves until it is stopped; tests/serve/test_documented.py runs the page's lines in their order"
SEVERAL_INPUTS_RUN = "takes minutes on arrays that the page makes; tests/tasks runs such a file to bundles"
SEVERAL = "asks a server that runs; tests/serve/test_several_inputs.py runs the page's lines"
TRACES = "needs a collector; tests/serve/tracing/test_example.py runs the page's script with one"
INSTALLS = "installs from an index of released packages; tests/test_packaging.py builds the wheel and installs it"
ENGINE = "needs a container engine; tests/deploy runs the builder's lines, hadolint, and compose's schema"
FLEET = "needs devices; tests/fleet/rollout runs it on some behind a real sshd"
METRICS = "needs a microphone; tests/device/monitor/test_predict_metrics.py runs it on a pipe"
RELEASES = "changes the releases of this device; tests/device/releases runs it"
SERVICE = "changes the system; tests/deploy/test_unit.py has systemd check the unit"
MAKES = "CI runs it as a whole"
ASKS = "asks for a passphrase; tests/docs/scene.py makes the same keys without one"
COLLECTED = "a suite runs it; here its tests are collected"
LABELS = "takes labels that a person wrote; tests/cli/field/test_packing.py writes some, packs and inspects them"
SEARCHES = "searches for minutes; tests/search/test_search.py does so on a smaller config, and replays it"
CIFAR_SEARCH = "edgekit search configs/cifar10.yaml --space configs/spaces/cifar10.yaml"
HALF_AN_HOUR = "takes half an hour; the same options are run for seconds by "

WORKERS = "tests/workbook/workers starts a scheduler and workers, and sends works to them"
CONFIGS = "runs two configs for minutes; tests/workbook/test_parallel_runs.py runs several"

PICTURES_OF_PARTS = "tests/models/test_patchcore.py fits such a network; whole runs of pictures take minutes"
TRAINED_FILE = "needs a trained file; tests/cli/test_init_model.py runs it with others"
BUSY = "refuses reports of a machine that runs tests; tests/report/field/test_board_reports.py makes quiet ones"

LIVE = "needs a camera; tests/device/live runs such commands on a film"
SWITCH = "tests/device/live/test_tutorial.py runs it on a film, with a broker"
DETECTOR = "detector-onnx-1.0.0.edge.zip"
DOOR = f"{DEVICE} live {DETECTOR} --from door=v4l2:/dev/video0 --page 8080"

ELSEWHERE = {
    "edgerun live detector-onnx-1.0.0.edge.zip --from v4l2:/dev/video0 --rule label=person threshold=0.6 "
    "--to mqtt://broker/edgekit --page 8080": LIVE,
    "edgerun live detector-onnx-1.0.0.edge.zip --from rpicam --page 0.0.0.0:8080": LIVE,
    "edgerun live --config live.yaml": LIVE,
    "edgerun watch -- edgerun live current --config live.yaml": LIVE,
    "ssh -L 8080:127.0.0.1:8080 pi@raspberrypi.local": "needs a device",
    f"scp {DETECTOR} edgerun.pyz pi@raspberrypi.local:": "needs a device",
    "sudo apt-get update && sudo apt-get install -y ffmpeg python3-venv": "installs packages of the system",
    "python3 -m venv edge && edge/bin/pip install 'numpy>=1.22' 'onnxruntime>=1.18' pillow pyyaml 'paho-mqtt>=2,<3'": (
        INSTALLS
    ),
    f"{DEVICE} doctor {DETECTOR}": SWITCH,
    f"{DEVICE} selftest {DETECTOR}": SWITCH,
    DOOR: SWITCH,
    f"{DOOR} --rule name=visitor label=person threshold=0.6 on_after_s=1 off_after_s=5 "
    "'zone=[[0.3, 0.5], [0.8, 0.5], [0.8, 1], [0.3, 1]]'": SWITCH,
    "install -m 600 /dev/null broker.txt": SWITCH,
    "nano broker.txt": "an editor; tests/device/live/test_tutorial.py writes the file",
    f"{DEVICE} live --config live.yaml": SWITCH,
    f"{DEVICE} install {DETECTOR}": SWITCH,
    "sudo install -m 644 edgerun-live.service /etc/systemd/system/": SERVICE,
    "sudo systemctl enable --now edgerun-live": (
        "changes the system; tests/device/live/test_tutorial.py runs what the unit starts"
    ),
    f"{DEVICE} status": SWITCH,
    "edgekit init parts --task anomaly --data parts": PICTURES_OF_PARTS,
    "edgekit run parts.yaml": PICTURES_OF_PARTS,
    "python edgerun.pyz predict parts-tflite-1.0.0.edge.zip parts/test/scratch/ --draw drawn/": PICTURES_OF_PARTS,
    "edgekit optimize colleague.onnx --data pictures/ --drop 1pp": TRAINED_FILE,
    "edgekit init colleague --model colleague.onnx --data pictures/": TRAINED_FILE,
    "edgekit run colleague.yaml": TRAINED_FILE,
    "edgekit optimize yolov8n.onnx --data pictures/ --drop 1pp": TRAINED_FILE,
    "edgekit optimize yolo11n-pose.onnx --data people/": TRAINED_FILE,
    "edgekit optimize yolo11n-seg.onnx --data parts/": TRAINED_FILE,
    "edgekit run configs/digits.yaml --set training.shares=4 --processes 4": "tests/training/data_parallel trains so",
    "torchrun --standalone --nproc-per-node 4 --no-python edgekit run configs/digits.yaml --set training.shares=4": (
        "tests/training/data_parallel/test_torchrun.py trains so"
    ),
    "pipx install model-signing": "a program in an environment of its own, as in make fleet",
    "pipx inject model-signing pyopenssl": "a program in an environment of its own, as in make fleet",
    "openssl ecparam -name prime256v1 -genkey -noout -out oms.pem": "tests/fleet/test_oms.py makes a key so",
    "openssl ec -in oms.pem -pubout -out oms.pub.pem": "tests/fleet/test_oms.py makes a key so",
    f"edgekit sign {INFO} --key anna --trust trust --oms oms.pem": "needs model_signing, as in make fleet",
    f"edgekit verify {INFO} --trust trust --oms oms.pub.pem": "needs model_signing, as in make fleet",
    "ssh-keygen -t ed25519 -C root -f root": ASKS,
    "ssh-keygen -t ed25519 -C anna -f anna": ASKS,
    f"scp -r trust {INFO}.intoto.json {INFO}.intoto.json.sig pi@raspberrypi.local:": "needs a device",
    "edgekit bundle detector.onnx --task detection --labels red,white,platelet --golden cells/ --fit letterbox "
    "--threshold 0.4": "takes a file that the page does not make; tests/cli/test_bundle_several_outputs.py makes some",
    "edgekit field board-table boards/": BUSY,
    "edgekit field board-table boards/ --out boards.md": BUSY,
    "edgekit serve artifacts/digits/bundles/": SERVES,
    "curl -T sample.png localhost:8000/predict": SERVES,
    "python ask.py": SERVES,
    "curl -T sample.npz localhost:8000/predict": SEVERAL,
    "python ask_several.py": SEVERAL,
    "edgekit serve artifacts/digits/bundles/ --trace-to http://127.0.0.1:4318 --trace-share 0.01": TRACES,
    "docker run --publish 127.0.0.1:16686:16686 --publish 127.0.0.1:4318:4318 jaegertracing/jaeger:2.8.0": ENGINE,
    "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http": INSTALLS,
    "python ask_traced.py": TRACES,
    "perf_analyzer -m digits -u localhost:8000": "lies in build/triton; tests/serve/test_perf_analyzer.py runs it",
    "sudo apt-get update && sudo apt-get install -y make python3-venv": "installs packages of the system",
    "python3 -m venv edge": "makes an environment on another system",
    "edge/bin/pip install './edgekit_workbook-0.1.0-py3-none-any.whl[tflite]'": "installs on another system",
    "make run": "installs the workbook; tests/conftest.py executes such a run",
    "make test": MAKES,
    "make quick": "runs a part of make test",
    "make nightly": "runs every suite, for hours",
    "make lab": "opens JupyterLab",
    "docker build --file deploy/Dockerfile --build-arg BUNDLES=artifacts/digits/bundles --tag edgekit-serve:local .": (
        ENGINE
    ),
    "docker run --read-only --cap-drop ALL --publish 127.0.0.1:8000:8000 edgekit-serve:local": ENGINE,
    "docker compose --file deploy/compose.yaml up --build": ENGINE,
    "openssl rand -hex 32 | sudo install -m 600 -o 10001 /dev/stdin deploy/token": (
        "makes a file of another user; tests/deploy/test_root.py serves with one of these rights"
    ),
    "uv pip compile --extra serve --no-emit-package numpy --constraints constraints.txt --python-version 3.11 "
    "--only-binary :all: --generate-hashes --no-annotate --no-header pyproject.toml": (
        "asks an index; tests/deploy/test_root.py holds the file to the extra and to constraints.txt"
    ),
    "python -m deploy.root build/root --interpreter ai-edge-litert artifacts/digits/bundles": (
        "installs; tests/deploy/test_root.py runs it, as the Dockerfile calls it"
    ),
    "sudo python3.11 -m deploy.root /opt/edgekit --interpreter ai-edge-litert artifacts/digits/bundles": SERVICE,
    "sudo install -m 644 deploy/edgekit-serve.service /etc/systemd/system/": SERVICE,
    "sudo install -d -m 700 /etc/edgekit": SERVICE,
    "openssl rand -hex 32 | sudo install -m 600 /dev/stdin /etc/edgekit/token": SERVICE,
    "sudo systemctl enable --now edgekit-serve": SERVICE,
    f"edgekit fleet push {INFO} --to hosts.yaml": FLEET,
    "edgekit fleet status --to hosts.yaml": FLEET,
    f"edgekit fleet rollback {INFO} --to hosts.yaml": FLEET,
    f"edgekit fleet push {INFO} --to hosts.yaml --wheels wheels": FLEET,
    f"edgekit fleet bench {INFO} --to hosts.yaml --class pi4": FLEET,
    f"edgekit fleet doctor {INFO} --to hosts.yaml": FLEET,
    f"edgekit fleet confirm {INFO} --to hosts.yaml": FLEET,
    "pip install -c constraints.txt '.[workbook,fleet]'": INSTALLS,
    "pip install -c constraints.txt '.[workbook,search]'": INSTALLS,
    "edgekit search configs/digits.yaml --minutes 10": SEARCHES,
    "edgekit search configs/digits.yaml --minutes 10 --out again --replay artifacts/digits-search": SEARCHES,
    "pip download --only-binary :all: --python-version 311 --platform manylinux_2_28_aarch64 -d wheels numpy "
    "ai-edge-litert": "asks an index; tests/fleet/devices/test_wheels.py chooses from such a folder",
    "edgerun install digits-tflite-1.0.0.edge.zip": RELEASES,
    "edgerun watch -- python app.py": RELEASES,
    "edgerun status": RELEASES,
    "sudo install -d /etc/edge": SERVICE,
    "echo /var/lib/edge | sudo tee /etc/edge/trust": SERVICE,
    "sudo useradd --system --home-dir /var/lib/edge edge": SERVICE,
    "sudo install -m 644 deploy/edgekit-watch.service /etc/systemd/system/": SERVICE,
    "sudo systemctl enable --now edgekit-watch": SERVICE,
    "sudo install -D -m 644 deploy/edgekit-serve-openvino.conf "
    "/etc/systemd/system/edgekit-serve.service.d/openvino.conf": SERVICE,
    ".venv/bin/pytest tests/runner/test_model.py": COLLECTED,
    ".venv/bin/pytest tests/runner/test_model.py -k golden": COLLECTED,
    ".venv/bin/pytest -m long tests/pipelines/test_windows.py": COLLECTED,
    "apt-get install ffmpeg qemu-user chromium strace nginx systemd redis-server slowhttptest openssh-client "
    "openssh-server prometheus mosquitto": ("installs"),
    "apt-get install libb64-0d": "installs; tests/serve/test_perf_analyzer.py fails without it",
    "python -m docs.generate": "writes the pages; tests/docs/test_reference.py compares every part with them",
    "python -m edgekit.core.schema > docs/result.schema.json": "tests/report/test_result.py runs it, and compares",
    "make zoo": MAKES,
    "make reference": "executes the reference notebooks, which are committed",
    "python -m tests.zoo.matrix": "writes docs/reference/zoo.md, in some minutes; `make zoo` compares every cell of it",
    "pip install .": INSTALLS,
    "pip install '.[tflite]'": INSTALLS,
    "pip install '.[mlflow]'": INSTALLS,
    "pip install -c constraints.txt '.[workbook]'": INSTALLS,
    "pip install -c constraints.txt '.[workbook,cache]'": INSTALLS,
    "edgekit run configs/digits.yaml --cache s3://bucket/edgekit": (
        "needs a store; tests/workbook/shared_cache/test_object_store.py uses a real S3 server"
    ),
    "pip install -c constraints.txt '.[workbook,dask]'": INSTALLS,
    "edgekit run configs/digits.yaml configs/mine.yaml --workers 2": CONFIGS,
    "edgekit run configs/digits.yaml configs/mine.yaml --on dask://desk:8786": WORKERS,
    "dask scheduler --port 8786 --no-dashboard": WORKERS,
    "dask worker tcp://desk:8786 --nworkers 1 --nthreads 1 --no-dashboard": WORKERS,
    "sbatch --nodes 4 slurm-workers.sh": "needs Slurm; tests/workbook/workers/test_recipes.py runs the script",
    "kubectl apply -f dask-workers.yaml": "needs a cluster; tests/workbook/workers/test_recipes.py reads the manifest",
    "kubectl port-forward service/edgekit-scheduler 8786:8786": "needs a cluster",
    "ray job submit --no-wait --entrypoint-num-cpus 4 -- dask worker tcp://desk:8786 --nworkers 1 --nthreads 1": (
        "needs Ray, which is no dependency; the page says that nobody ran it"
    ),
    "pip install './edgekit_workbook-0.1.0-py3-none-any.whl[tflite]'": INSTALLS,
    "pip install './edgekit_workbook-0.1.0-py3-none-any.whl[workbook]'": "tests/test_wheel.py installs it",
    "pip wheel --no-deps .": INSTALLS,
    "edgekit run configs/blood_cells.yaml": "trains two networks on pictures",
    "edgekit run cells.yaml": "trains a detector for ten minutes",
    "python3.12 -m venv .venv": "makes an environment of gigabytes",
    '.venv/bin/pip install torch==2.13.0 --index-url "$CPU_INDEX"': INSTALLS,
    "python3 -m venv edge && edge/bin/pip install 'numpy>=1.22' 'ai-edge-litert>=2.0'": INSTALLS,
    f"scp artifacts/digits/bundles/edgerun.pyz {INFO} pi@raspberrypi.local:": "needs a device",
    "scp -r sample.npy samples pi@raspberrypi.local:": "needs a device",
    f"{MICROPHONE}edgerun predict {SOUNDS} --stream S16_LE --hop 1600 --json": (
        "needs a microphone; tests/runner/streaming/test_predict_stream.py feeds a process bit by bit"
    ),
    f"{MICROPHONE}edgerun predict {SOUNDS} --stream S16_LE --metrics /var/lib/node_exporter/model.prom": METRICS,
    f"edgerun predict {SOUNDS} --stream S16_LE --metrics 127.0.0.1:9100": METRICS,
    f"{RECORDING}edgerun predict {SOUNDS} --stream s16le --when-slow wait": (
        "needs a bundle of sounds; tests/runner/streaming/test_predict_stream.py pipes ffmpeg in"
    ),
    "socat -u /dev/ttyACM0,b115200,raw - | edgerun predict worn-onnx-1.0.0.edge.zip --stream csv --hop 16": (
        "needs a board; tests/runner/streaming/test_predict_stream.py pipes lines in"
    ),
    "edgekit field pack kept/ uncertain.npz --labels uncertain.csv --with digits.npz --force": LABELS,
    "edgekit init better --data uncertain.npz": LABELS,
    "edgekit init camera --data camera.npz": SEVERAL_INPUTS_RUN,
    "edgekit run camera.yaml": SEVERAL_INPUTS_RUN,
    "python edgerun.pyz predict camera-tflite-1.0.0.edge.zip one.npz": (
        "needs a bundle of several inputs; tests/runner/test_predict_tensors.py asks one of each target"
    ),
    "edgekit export eim cells-onnx-1.0.0.edge.zip --out for-eim": (
        "needs a bundle of boxes; tests/serve/export/test_eim.py exports one"
    ),
    "edgekit export frigate cells-onnx-1.0.0.edge.zip --out for-frigate": (
        "needs a bundle of boxes; tests/serve/export/test_frigate.py exports one"
    ),
    "python edgerun.pyz predict cells-tflite-1.0.0.edge.zip cells/ --coco results.json": (
        "needs a bundle of boxes; tests/runner/test_predict_coco.py reads its results"
    ),
    "python edgerun.pyz predict cells-tflite-1.0.0.edge.zip cells/ --draw drawn/": (
        "needs a bundle of boxes; tests/runner/test_predict_draw.py draws its answers"
    ),
    f"rpicam-vid --codec yuv420 -o - | {DEVICE} predict {CAMERA} --stream yuv420p --size 640x480": (
        "needs a camera; tests/runner/inputs/test_stream.py pipes frames in"
    ),
    f"{DEVICE} bench {BUNDLE} --minutes 30 --rate 10": f"{HALF_AN_HOUR}tests/device/measure/test_bench_minutes.py",
    f"edgekit load {INFO}": f"{HALF_AN_HOUR}tests/measure/load/test_command.py",
    f"edgekit load {INFO} --scenario server --rate 100 --p99-ms 5": f"{HALF_AN_HOUR}tests/measure/load/test_command.py",
    "edgekit run configs/cifar10.yaml": "trains for an hour and a half",
    "edgekit run configs/cifar10_small.yaml --set threads=2 --set training.precision=auto": "trains for an hour",
    f"{CIFAR_SEARCH} --minutes 42 --trials 8 --set threads=2 --set training.precision=auto": "trains for over an hour",
    "edgekit reproduce cifar10-tflite-1.0.0.edge.zip --set data.path=cifar10.zip": "trains for an hour and a half",
    "edgekit reproduce mine-tflite-1.0.0.edge.zip --allow nets:make_net --set data.path=pictures.zip": (
        "needs a bundle of one's own; tests/workbook/test_reproduce.py allows and refuses such functions"
    ),
}

NEEDS_FFMPEG = {command for command in QUICK if command.startswith("ffmpeg")}
NEEDS_SHARED = {
    "edgekit run configs/cifar10.yaml --dry-run",
    *(command for command in QUICK if command.startswith("edgekit bundle pretrainedResnet")),
}
"""Those that need MLPerf Tiny's file, which lies in the models of EDGEKIT_SHARED."""


def as_run(command: str) -> str:
    """The command with other paths."""
    for published, runnable in SUBSTITUTIONS.items():
        command = command.replace(published, runnable)
    return command
