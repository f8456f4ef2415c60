"""Write images of a task and their texts: python -m training.pictures digits --output DIR."""

from __future__ import annotations

from training.command.errors import UserError
from training.command.files import name_path_in_oserror
from training.command.options import Parser, count, folder_to_write, main_guard, positive_int


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.pictures",
        description="Write images and their labels.tsv, which `images:DIR` reads as data.",
        examples=["digits --output pictures/digits", "captcha --output pictures --count 1000"],
    )
    parser.add_argument("task", choices=("digits", "captcha"), help="the task")
    parser.add_argument(
        "--output", type=folder_to_write, required=True, metavar="DIR", help="new or empty folder"
    )
    parser.add_argument("--count", type=positive_int, default=100, metavar="N", help="how many")
    parser.add_argument("--seed", type=count, default=7, metavar="N", help="seed of the images")
    options = parser.parse_args(arguments)
    if options.output.is_dir() and any(options.output.iterdir()):
        raise UserError(f"--output needs a new or empty directory, but {options.output} has files")
    from training.sources.image import _captchas as captchas
    from training.sources.image import _digits as digits
    from training.sources.image._data import LABELS

    if options.task == "digits":
        made = digits.make(options.count, options.seed, test=True)
    else:
        made = captchas.make(options.count, options.seed)
    with name_path_in_oserror(options.output):
        options.output.mkdir(parents=True, exist_ok=True)
        lines = []
        for number, (image, text) in enumerate(made.pairs()):
            (options.output / f"{number:04d}.png").write_bytes(image)
            lines.append(f"{number:04d}.png\t{text}\n")
        (options.output / LABELS[0]).write_text("".join(lines), encoding="utf-8")
    print(f"Wrote {options.count} images and labels.tsv to {options.output}")


if __name__ == "__main__":
    main_guard(main)
