"""Thumbnails of a folder's pictures: work for the processor, so processes and not greenlets do it.

    python examples/thumbnails.py FOLDER        (needs pillow)

One worker a process, a process a core (``thumbs=1x4``): a handler that computes holds its process,
and a second worker there would only wait. A picture that kills its process, or is no picture, is
set aside in the dead-letter queue and the rest goes on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import skedulr

SIDE = 160
KINDS = {".jpg", ".jpeg", ".png", ".webp"}


@skedulr.task(name="thumbnail", pool="thumbs", timeout=30, never_retry_on=(OSError,))
def thumbnail(source: str, target: str) -> list[int]:
    """Write a small copy, whole or not at all; its width and height."""
    from PIL import Image  # only in the processes that draw

    with Image.open(source) as image:
        image.thumbnail((SIDE, SIDE))
        unfinished = f"{target}.{skedulr.current_task().token}"
        image.convert("RGB").save(unfinished, "JPEG", quality=85)
    os.replace(unfinished, target)
    return list(image.size)


def run(folder: Path) -> tuple[int, int]:
    """Draw all; how many there are now, and how many could not be drawn."""
    small = folder / "small"
    small.mkdir(exist_ok=True)
    pictures = sorted(one for one in folder.iterdir() if one.suffix.lower() in KINDS)
    handles = skedulr.submit_many(
        thumbnail.bind(str(one.resolve()), str((small / one.name).with_suffix(".jpg").resolve()))
        for one in pictures
    )
    failed = 0
    for handle in skedulr.as_completed(handles):
        if handle.state != "succeeded":
            failed += 1
            print(f"{handle.id}: {handle.info()['error']['message']}", file=sys.stderr)
    return len(handles) - failed, failed


if __name__ == "__main__":
    from beside import master

    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with master("thumbnails", f"thumbs=1x{os.cpu_count() or 1}"):
        print("{} thumbnails, {} failed".format(*run(Path(sys.argv[1]))))
