"""Texts on the device: their ids, and one clear line for what is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.data import vocabulary
from edgekit.runner import bundle, input_path, inputs, load, tokenization
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.cli import main
from edgekit.runner.errors import BundleError, InputError, TrustError

from ..conftest import npy

TOKENIZER = vocabulary.train_vocabulary(["win a free prize, call now", "see you at home for dinner"] * 3, 90)
SIZE = tokenization.read_tokenizer(TOKENIZER).size
MEMBERS = {"tokenizer.json": TOKENIZER}
TOKENS = 12


def raw(too_long: str = "cut", table: input_path.Step | None = None) -> RawSpec:
    steps = tuple(input_path.text_steps("tokenizer.json", TOKENS, 0, too_long, table))
    return RawSpec("text", (TOKENS,), "int32", (0, SIZE - 1), input_path=steps)


def rows(**changes: object) -> tuple[input_path.Step, ...]:
    """The steps of a table of texts, of which some options are others."""
    table = {**input_path.text_table_step("comma", True, "said"), **changes}
    return tuple(input_path.text_steps("tokenizer.json", TOKENS, 0, table=table))


def model() -> bytes:
    """The mean of two numbers for each token: ONNX, (n, 12) int32 in, (n, 2) out."""
    import onnx
    from onnx import helper, numpy_helper

    table = np.random.default_rng(3).normal(size=(SIZE, 2)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "input"], ["looked_up"]),
        helper.make_node("ReduceMean", ["looked_up"], ["scores"], axes=[1], keepdims=0),
    ]
    ends = [
        helper.make_tensor_value_info("input", onnx.TensorProto.INT32, ("n", TOKENS)),
        helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ("n", 2)),
    ]
    graph = helper.make_graph(nodes, "sum", ends[:1], ends[1:], [numpy_helper.from_array(table, "table")])
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString()
    return made


def packed(path: Path, spec: RawSpec, members: dict[str, bytes]) -> Path:
    from edgekit.runner.backends import open_backend

    ends = TensorSpec("input", (1, TOKENS), "int32", "NC"), TensorSpec("scores", (1, 2), "float32", "NC")
    files = {"model.onnx": model()}
    x = np.random.default_rng(0).integers(0, SIZE, (4, TOKENS)).astype(np.int32)
    backend = open_backend("onnx", files, ends[:1], ends[1:])
    scores = np.concatenate([backend.run(row[None]) for row in x])
    golden = {"inputs": "golden/inputs.npy", "outputs": "golden/outputs.npy", "atol": 1e-5, "top1": True}
    manifest = Manifest(
        "texts", "1.0.0", "onnx", "baseline-onnx", spec, ends[:1], ends[1:], [], ["ham", "spam"], list(files), golden
    )
    bundle.write(path, manifest, {**files, **members, golden["inputs"]: npy(x), golden["outputs"]: npy(scores)})
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return packed(tmp_path / "texts.edge.zip", raw(), MEMBERS)


def test_a_text_is_its_ids_filled_up_to_the_length(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("Win a FREE prize!", encoding="utf-8")
    found = inputs.read_first_sample(str(tmp_path / "x.txt"), raw(), members=MEMBERS)
    ids = tokenization.read_tokenizer(TOKENIZER).encode("win a free prize!")
    assert found.dtype == np.int32 and found.tolist() == ids + [0] * (TOKENS - len(ids))


def test_what_is_too_long_is_cut_before_the_last_token_or_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("win a free prize " * 9, encoding="utf-8")
    name, tokenizer = str(tmp_path / "x.txt"), tokenization.read_tokenizer(TOKENIZER)
    found = inputs.read_first_sample(name, raw(), members=MEMBERS)
    assert (
        found[-1] == tokenizer.encode("")[-1] and found[:-1].tolist() == tokenizer.encode("win a free prize " * 9)[:11]
    )
    with pytest.raises(
        InputError, match=r"x.txt: 38 tokens, but the bundle takes 12; shorten the text, or leave --strict"
    ):
        inputs.read_first_sample(name, raw(), strict=True, members=MEMBERS)
    with pytest.raises(InputError, match=r"x.txt: 38 tokens, but the bundle takes 12; shorten the text$"):
        inputs.read_first_sample(name, raw("refuse"), members=MEMBERS)


@pytest.mark.parametrize("more", [(), ("--batch", "2")])
def test_a_truncated_text_is_reported_on_both_streams(
    more: tuple[str, ...], path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {"a": "free", "b": "win a free prize " * 9, "c": "call now " * 20}.items():
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    files = [str(tmp_path / f"{name}.txt") for name in "abc"]
    assert main(["predict", str(path), *files, "--json", "--no-trial", *more]) == 0
    captured = capsys.readouterr()
    answers = [json.loads(line) for line in captured.out.splitlines()]
    assert ["cut" in each for each in answers] == [False, True, True]
    assert answers[1]["cut"] == {"kept": TOKENS, "tokens": 38}
    notice = f"edgerun: {files[1]}, the first 12 of 38 tokens: the bundle takes no more, so the rest was cut off"
    assert captured.err == f"{notice}; the same happened to 1 more\n"
    assert main(["predict", str(path), files[1], "--no-trial", *more]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{files[1]}, the first 12 of 38 tokens: ") and captured.err.count("\n") == 1
    assert main(["predict", str(path), files[0], "--no-trial", *more]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("more", [(), ("--batch", "2")])
def test_every_row_of_a_table_is_answered_as_a_file_of_its_text(
    more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = packed(tmp_path / "rows.edge.zip", raw(table=input_path.text_table_step("comma", True, "said")), MEMBERS)
    texts = ["free", "win a free prize " * 9, 'see "you"\nat home']
    cells = [text.replace('"', '""') for text in texts]
    (tmp_path / "x.csv").write_text("label,said\n" + "".join(f'ham,"{cell}"\n' for cell in cells), encoding="utf-8")
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    files = [str(tmp_path / f"{number}.txt") for number in range(3)]
    answers = []
    for arguments in ([str(tmp_path / "x.csv")], files):
        assert main(["predict", str(path), *arguments, "--json", "--no-trial", *more]) == 0
        answers.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert [each["scores"] for each in answers[0]] == [each["scores"] for each in answers[1]]
    assert [(each["row"], each.get("cut")) for each in answers[0]] == [(1, None), (2, answers[1][1]["cut"]), (3, None)]


def test_a_bundle_of_texts_proves_itself_and_answers_files_and_arrays_alike(path: Path, tmp_path: Path) -> None:
    model = load(path, trial=False)
    assert model.selftest().ok
    (tmp_path / "x.txt").write_text("call now for dinner", encoding="utf-8")
    np.save(tmp_path / "x.npy", inputs.read_first_sample(str(tmp_path / "x.txt"), raw(), members=MEMBERS))
    answers = [next(model.predict_file(tmp_path / name)).prediction.scores.tolist() for name in ("x.txt", "x.npy")]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([SIZE], rf"token ids from 0 to {SIZE}; the bundle's vocabulary has 0 to {SIZE - 1}"),
        ([-1], "token ids from -1 to 0"),
    ],
)
def test_an_id_outside_the_vocabulary_is_refused(ids: list[int], message: str, path: Path) -> None:
    sample = np.zeros(TOKENS, np.int32)
    sample[: len(ids)] = ids
    with pytest.raises(InputError, match=message):
        load(path, trial=False).predict(sample)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"caf\xe9", "x.txt: not text in UTF-8 (byte 3); save it in UTF-8"),
        ("x.txt", b"\xff\xfeh\0i\0", "x.txt: not text in UTF-8 (byte 0)"),
        ("x.txt", b"", "x.txt: an empty text, which has no tokens; give it words"),
        ("x.txt", b"\xef\xbb\xbf \n\t", "x.txt: an empty text"),
        ("x.txt", b"h\0i\0", "x.txt: holds U+0000, so it is not text, or it is UTF-16; save it in UTF-8"),
        ("x.txt", b"e" + "\u0323\u0301".encode() * 501, "x.txt: more than 1000 combining marks in a row"),
        ("x.txt", b"a" * (1 << 20) + b"b", "x.txt: more than 1,048,576 bytes"),
        ("x.csv", b"a,b\n1,2\n", "takes int32[12], not a table"),
        ("x.md", b"hello", "cannot read .md; this bundle takes .npy, .txt"),
    ],
)
def test_a_bad_file_is_one_line_and_exit_code_4(
    name: str, content: bytes, message: str, path: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    command = [sys.executable, "-m", "edgekit.runner", "predict", str(path), str(tmp_path / name), "--no-trial"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 4 and message in done.stderr and len(done.stderr.splitlines()) == 1


def test_several_texts_a_call_get_the_answers_of_one_at_a_time(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "texts"
    home.mkdir()
    for number in range(7):
        (home / f"{number}.txt").write_text("free prize " * number + "dinner", encoding="utf-8")
    (home / "3-bad.txt").write_bytes(b"caf\xe9")
    runs = []
    for more in ((), ("--batch", "1"), ("--batch", "3"), ("--batch", "16")):
        assert main(["predict", str(path), str(home), "--json", "--no-trial", *more]) == 4
        runs.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    plain, *batched = runs
    assert len(plain) == 8 and "UTF-8" in plain[3]["error"]
    for one, other in zip(plain * 3, [answer for answers in batched for answer in answers], strict=True):
        assert [one.get(key) for key in ("input", "label", "error")] == [
            other.get(key) for key in ("input", "label", "error")
        ]
        np.testing.assert_allclose(other.get("scores", 0), one.get("scores", 0), atol=1e-6)


def test_a_bundle_of_anything_else_takes_no_text(bundles: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(InputError, match="cannot read .txt; this bundle takes .npy, .png"):
        next(load(bundles["onnx"], trial=False).predict_file(tmp_path / "x.txt"))


def test_the_vocabulary_is_a_member_that_is_listed_and_checked(path: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"members: got 'tokenizer.json'; it is named but not listed"):
        packed(tmp_path / "without.edge.zip", raw(), {})
    content = path.read_bytes()
    place = content.index(b'"dinner"')
    path.write_bytes(content[: place + 1] + b"D" + content[place + 2 :])
    with pytest.raises(TrustError, match=r"tokenizer.json"):
        load(path, trial=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float32"}, "token ids are int32"),
        ({"range": None}, r"must be \[0, the highest token id\]"),
        ({"range": (0.5, 9.0)}, r"must be \[0, the highest token id\]"),
        ({"input_path": ({"step": "decode_text"},)}, "decode_text and tokenize go together"),
        ({"input_path": tuple(input_path.text_steps("tokenizer.json", 13, 0))}, "got length 13; the sample has 12"),
        ({"input_path": tuple(input_path.text_steps("tokenizer.json", 12, 10**6))}, "got pad_id 1000000"),
        ({"input_path": rows(column="")}, r"input_path\[1\].column: got ''; use a column's name, or its number"),
        ({"input_path": rows(column=0)}, r"input_path\[1\].column: got '0'"),
        ({"input_path": rows(column=True)}, r"input_path\[1\].column: got 'True'"),
        ({"input_path": rows(header=1)}, r"input_path\[1\].header: got '1'; use true or false"),
        ({"input_path": rows(header=False)}, "got column 'said'; without a header, give its number"),
        ({"input_path": rows(delimiter="|")}, r"input_path\[1\].delimiter: got '\|'"),
        ({"input_path": rows()[1:]}, "decode_text and tokenize go together"),
        ({"input_path": tuple(input_path.text_steps("../x", 12, 0))}, "must be a plain relative name"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    known = {
        "kind": "text",
        "shape": (TOKENS,),
        "dtype": "int32",
        "range": (0, SIZE - 1),
        "input_path": raw().input_path,
    }
    with pytest.raises(BundleError, match=message):
        packed(tmp_path / "x.edge.zip", RawSpec(**{**known, **changes}), MEMBERS)  # type: ignore[arg-type]
