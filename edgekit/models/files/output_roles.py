"""What each output of a file is for a task: boxes and logits of a detection, the grid of a segmentation.

An answer has boxes before logits, and channels before rows and columns, whatever order a file has.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.core.errors import ModelError
from edgekit.runner import boxes, masks, output_vector
from edgekit.runner.errors import BundleError

Shapes = Sequence[Sequence[int]]
MOST = {"detection": 2}
"""How many outputs a file may have, by task; of any other one."""


def of_boxes(shapes: Shapes, classes: int, size: Sequence[int], named: int | None = None) -> list[int]:
    """Places of a detection's outputs, boxes first, by their shapes without a batch; one place where they are joined.

    `size` is a sample's height and width. Where there are 4 classes too, `named` is the place of the boxes, else the
    first. ModelError where the outputs are none, or their points those of no grids.
    """
    wanted = boxes.SIDES + classes
    shown = " and ".join(str(list(each)) for each in shapes)
    must = (
        f"gives {shown} for each sample; a detection of {classes} classes gives boxes [points, {boxes.SIDES}] and "
        f"logits [points, {classes}], or [points, {wanted}] in one"
    )
    places = list(range(len(shapes)))
    if len(places) == 2:
        first = next((place for place in places if _width(shapes[place]) == boxes.SIDES), 0)
        first = first if named is None else named
        places = [first, 1 - first]
        if [_width(shapes[place]) for place in places] != [boxes.SIDES, classes]:
            raise ModelError(must)
    found = output_vector.shape([shapes[place] for place in places])
    if len(places) not in (1, 2) or len(found) != 2 or found[1] != wanted:
        turned = len(found) == 2 and found[0] == wanted
        raise ModelError(f"{must}{'; export it with its points before what each has' if turned else ''}")
    try:
        boxes.strides(size, found[0])
    except BundleError as error:
        raise ModelError(str(error)) from None
    return places


def of_mask(shape: Sequence[int], classes: int, size: Sequence[int]) -> str:
    """NCHW or NHWC: how a segmentation's output stands, by its shape without a batch; ModelError where it is none."""
    fitting = {
        layout: grid
        for layout, grid, channels in (("NCHW", shape[1:], shape[:1]), ("NHWC", shape[:2], shape[2:]))
        if len(shape) == 3 and list(channels) == [classes]
    }
    if not fitting:
        one = "; of one channel make two: a concatenation of -x and x" if 1 in (*shape[:1], *shape[-1:]) else ""
        raise ModelError(
            f"gives {list(shape)} for each sample; a segmentation of {classes} classes gives logits "
            f"[{classes}, rows, columns] or [rows, columns, {classes}]{one}"
        )
    said = ""
    for layout, grid in list(fitting.items()):
        try:
            masks.cell(size, grid)
        except BundleError as error:
            said = said or str(error)
            del fitting[layout]
    if not fitting:
        raise ModelError(f"gives {list(shape)} for each sample: {said}")
    if len(fitting) == 2:
        raise ModelError(f"gives {list(shape)} for each sample, its classes first or last; export it with another grid")
    return next(iter(fitting))


def _width(shape: Sequence[int]) -> int:
    return shape[-1] if len(shape) == 2 else 0
