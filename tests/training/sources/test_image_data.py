"""Images with their texts: what is made, folders of one's own, and what is chosen for them."""

import csv
import io
import random
import re
import subprocess

import numpy as np
import pytest
from PIL import Image, ImageOps
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from tests.training.data.files import write
from tests.training.sources.test_image import encode
from training import pictures
from training.command.errors import UsageError
from training.command.options import Parser
from training.config.schema import PRESETS, load_config, override
from training.data.read._specs import CorpusError
from training.presets._arguments import add_configuration
from training.presets._options import configuration
from training.sources.image import _captchas as captchas
from training.sources.image import _data as images
from training.sources.image import _digits as digits
from training.sources.image._size import grid_size, size_of
from training.sources.image._source import ImageSource


def pixels(contents):
    return np.asarray(Image.open(io.BytesIO(contents)))


def boxed(split):
    """Each character of strings of digits with the levels in its box, `(8, 8)`."""
    for (image, text), boxes in zip(split.pairs(), split.boxes, strict=True):
        levels = pixels(image) * (16 / 255)
        for character, (left, top, right, bottom) in zip(text, boxes, strict=True):
            rows = slice(round(top * 32), round(bottom * 32))
            yield character, levels[rows, round(left * 72) : round(right * 72)]


@pytest.mark.parametrize("test", [False, True])
def test_each_box_holds_its_digit_and_no_test_digit_is_in_training(test, monkeypatch):
    monkeypatch.setattr(digits, "_DISTORTION", np.zeros(6))
    bank = load_digits()
    cut = int(len(bank.images) * 0.7)
    split = digits.make(11, seed=5, test=test)
    assert all(5 <= len(text) <= 9 for _, text in split.pairs())
    for character, box in boxed(split):
        nearest = np.abs(bank.images - box).sum(axis=(1, 2)).argmin()
        assert str(bank.target[nearest]) == character
        assert (nearest >= cut) == test


def test_digits_of_training_are_distorted_and_still_read_as_what_they_are():
    bank = load_digits()
    names, boxes = map(np.array, zip(*boxed(digits.make(40, seed=5)), strict=True))
    distances = np.abs(bank.images[:, None] - boxes).mean(axis=(2, 3)).min(axis=0)
    assert (distances > 0.5).all()  # the noise alone moves them by 0.2
    reader = SVC(gamma=0.001).fit(bank.data, bank.target.astype(str))
    assert (reader.predict(boxes.reshape(len(boxes), -1)) == names).mean() > 0.8


@pytest.mark.parametrize(
    "make", [digits.make, lambda count, seed: captchas._make_chunk(count, [seed, 0])]
)
def test_the_same_seed_gives_the_same_images_and_another_gives_others(make):
    assert make(3, 3) == make(3, 3) != make(3, 4)


def test_captchas_are_those_that_the_package_makes():
    ((image, made, boxes),) = captchas._make_chunk(1, [7, 0])
    assert len(boxes) == len(made)
    assert not set(captchas.CHARACTERS) & set("0O1I")
    rng = random.Random("7 0")
    package = captchas.package_with(rng)
    text = "".join(rng.choices(captchas.CHARACTERS, k=rng.randint(4, 6)))
    wanted = package.ImageCaptcha(160, 60).generate_image(text)
    assert text == made
    np.testing.assert_array_equal(pixels(image), np.asarray(wanted))


def test_a_folder_reads_back_as_it_was_written(tmp_path):
    pictures.main(["digits", "--output", str(tmp_path), "--count", "3", "--seed", "2"])
    made = digits.make(3, seed=2, test=True)
    found = images.load(f"images:{tmp_path}", "test")
    assert [path.read_bytes() for path in found.sources] == made.sources
    assert found.references == made.references
    assert not found.boxes
    some = images.load(f"images:{tmp_path}", "test", limit=2, seed=1)
    assert len(some.sources) == 2
    assert set(some.sources) < set(found.sources)


def test_files_of_one_name_are_told_apart_by_their_folders_and_few_images_have_a_dev_set(tmp_path):
    def loaded(root, lines):
        write(root / "labels.tsv", lines)
        train, dev = images.load_training(f"images:{root}")
        assert len(dev.sources) >= 1
        return {str(file): text for file, text in train.pairs() + dev.pairs()}

    (example,) = digits.make(1, seed=2).sources
    for root, count in ((tmp_path / "2", 2), (tmp_path / "90", 90)):
        files = [write(root / str(number) / "crop.png", example) for number in range(count)]
        found = loaded(
            root, [(f"{number}/crop.png", f"7\u2028{number}") for number in range(count)]
        )
        assert {*found} == {*map(str, files)}
    elsewhere = f"{root}/1/crop.png"
    found = loaded(tmp_path / "2", [("0/crop.png", "7"), (elsewhere, "cafe\u0301")])
    assert found == {f"{tmp_path}/2/0/crop.png": "7", elsewhere: "café"}
    with pytest.raises(CorpusError, match="too few images to hold out a dev set: 1"):
        loaded(tmp_path / "2", [("0/crop.png", "7")])


def test_a_name_has_its_splits_and_more_of_one_begins_as_less_of_it():
    few, more = (images.load("digits", "test", limit=limit) for limit in (2, 4))
    assert (few.sources, few.boxes) == (more.sources[:2], more.boxes[:2])
    assert images.load("digits", "dev", limit=2).sources != few.sources
    with pytest.raises(CorpusError, match="digits has no split 'tets'; it has train, dev, test"):
        images.load("digits", "tets")
    with pytest.raises(CorpusError, match="Unknown images 'mnist'; expected images:PATH or one of"):
        images.load("mnist", "train")


NO_LINE = "line 1: write the file, a tab, the text"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (None, "has no labels.tsv, a line `file TAB text` for each image.* it has 1 images"),
        ("", "labels.tsv is empty"),
        ("a.png 7\n", NO_LINE),
        ("a.png\t7\n\nb.png\t8\n" * 2, "line 3: there is no file .*b.png. 2 of 4 lines have"),
        ("a.png\t \n", NO_LINE),
        ("a.png\t7\tAnna\n", NO_LINE),
    ],
)
def test_a_folder_that_is_none_of_images_is_one_clear_line(labels, said, tmp_path):
    write(tmp_path / "a.png", b"")
    if labels is not None:
        write(tmp_path / "labels.tsv", labels)
    for folder, message in ((tmp_path, said), (tmp_path / "none", "is no folder of images")):
        with pytest.raises(CorpusError, match=message):
            images.load(f"images:{folder}", "train")


def folder_of(path, size, label, count=3):
    path.mkdir(exist_ok=True)
    for number in range(count):
        Image.new("L", size, 255 - number).save(path / f"{number}.png")
    names = sorted(each.name for each in path.glob("[0-9]*"))
    write(path / "labels.tsv", [(name, label) for name in names])
    return f"images:{path}"


def test_lines_without_an_image_are_left_out_and_told(tmp_path, capsys):
    spec = folder_of(tmp_path, (5, 3), "7", count=30)
    good = (tmp_path / "labels.tsv").read_text()
    write(tmp_path / "labels.tsv", f"file\ttext\n{good}none.png\t7\n0.png\t\n")
    train, dev = images.load_training(spec)
    assert (len(train.sources) + len(dev.sources), train.unusable, dev.unusable) == (30, 3, 0)
    images.load(spec, "test")
    (said,) = capsys.readouterr().out.splitlines()
    assert "line 1: there is no file" in said
    assert ". 3 of 33 lines have no image and are left out" in said
    (tmp_path / "new.png").touch()  # after the labels were read
    images.load(spec, "test")
    said = f"no text for 1 images of its folder, for example {tmp_path}/new.png"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(("name", "form"), [("labels.tsv", "excel-tab"), ("labels.csv", "excel")])
def test_labels_in_quotes_are_read_as_those_of_texts(tmp_path, name, form):
    rows = [(f"{n}.png", text) for n, text in enumerate(["no", 'a "b" c', "x\ty, z", "é"] * 9)]
    for file, _ in rows:
        write(tmp_path / file, b"")
    with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, form).writerows(rows)
    split = images.load(f"images:{tmp_path}", "train")
    assert [path.name for path in split.sources] == [name for name, _ in rows]
    assert split.references == [[text.replace("\t", " ")] for _, text in rows]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        *(("labels.tsv", line) for line in ("{},{}", '"{}";"{}"', "{} {}")),
        *(("labels.csv", line) for line in ("{};{}", "{}; {},5", "{} | {}", "{}\t{}")),
    ],
)
def test_another_separator_of_labels_is_told_with_the_command_that_repairs_it(tmp_path, name, line):
    folder = tmp_path / "my images"
    spec = folder_of(folder, (5, 3), "7", count=31)
    (folder / "labels.tsv").unlink()
    rows = [(f"{number}.png", f"a{number}") for number in range(31)]
    write(folder / name, "".join(f"{line.format(*row)}\n" for row in rows))
    wanted = "tabs" if name == "labels.tsv" else "commas"
    with pytest.raises(CorpusError, match=f"They have .* instead of {wanted}. To ") as error:
        images.load(spec, "train")
    command = re.search(f"instead of {wanted}[.] To .*?: (.*)", str(error.value))[1]
    subprocess.run(["bash", "-c", command], check=True)
    split = images.load(spec, "train")
    more = ",5" if ",5" in line else ""
    found = [(path.name, text) for path, text in split.pairs()]
    assert found == [(name, text + more) for name, text in rows]


def test_images_with_two_texts_are_counted(tmp_path, capsys):
    spec, labels = folder_of(tmp_path, (5, 3), "7", count=31), tmp_path / "labels.tsv"
    same = labels.read_text() + "3.png\t7\n"
    for text in (same, same + "3.png\t\u200b8\n./5.png\t9\n5.png\t10\n"):
        write(labels, text)
        images.load(spec, "train")
        said = capsys.readouterr().out
        assert bool(said) == (text != same)
    assert "2 images have two texts or more" in said
    assert f"{tmp_path}/3.png: 7 and <U+200B>8\n" in said


def configured(spec, *settings, options=()):
    """The configuration of `--data SPEC`, with these settings and options."""
    parser = Parser(prog="train")
    add_configuration(parser)
    words = [word for setting in settings for word in ("--set", setting)]
    return configuration(parser.parse_args(["--data", spec, *words, *options]))


@pytest.mark.parametrize("spec", ["images:folder", "events:visits.csv"])
@pytest.mark.parametrize("option", ["--dev", "--test"])
def test_a_part_that_is_fixed_takes_no_option(spec, option):
    said = r"--dev and --test work only for texts\. .* these (images|examples)\. To score other"
    with pytest.raises(UsageError, match=said):
        configured(spec, options=[option, "0.1"])


@pytest.mark.parametrize(
    ("size", "label", "settings", "wanted"),
    [
        ((640, 32), "a" * 30, [], (32, 640)),  # a line of text
        ((1280, 64), "a" * 30, [], (32, 640)),
        ((160, 60), "a" * 5, [], (32, 85)),
        ((600, 800), "a" * 200, [], (418, 314)),  # a page
        ((100, 600), "a" * 30, [], (600, 100)),  # from top to bottom
        ((60_000, 2), "ab", [], (32, 4096)),
        ((1, 60_000), "ab", [], (32_768, 4)),
        ((1, 1), "a", [], (32, 32)),
        ((640, 32), "a" * 30, ["image_height=16"], (16, 320)),
        ((640, 32), "a" * 30, ["image_width=96"], (32, 96)),
    ],
)
def test_images_of_ones_own_are_read_in_their_shape(size, label, settings, wanted, tmp_path):
    config = configured(folder_of(tmp_path, size, label), *settings)
    assert (config.image_height, config.image_width) == wanted


LINE, LETTERS = (640, 32), "a" * 25


@pytest.mark.parametrize(
    ("size", "label", "settings", "attention"),
    [
        (LINE, LETTERS, [], "hard_monotonic"),
        ((200, 32), "a" * 12, [], "hard_monotonic"),
        ((300, 28), "住所" * 5, [], "hard_monotonic"),
        ((72, 32), "1" * 9, [], "additive"),  # two rows
        ((320, 320), LETTERS, [], "additive"),
        (LINE, "שלום" * 6, [], "additive"),  # from right to left
        ((96, 32), "7", [], "additive"),
        (LINE, LETTERS, ["attention=additive"], "additive"),
        (LINE, LETTERS, ["gate=true"], "additive"),
        (LINE, LETTERS, ["convolutions=8:2x2"], "additive"),
        (LINE, LETTERS, ["image_height=48"], "hard_monotonic"),
        (LINE, LETTERS, ["image_height=80"], "hard_monotonic"),
        ((320, 320), LETTERS, ["attention=hard_monotonic"], "hard_monotonic"),
    ],
)
def test_lines_of_text_are_read_in_order(size, label, settings, attention, tmp_path, capsys):
    config = configured(folder_of(tmp_path, size, label), *settings)
    other = {"additive": "hard_monotonic", "hard_monotonic": "additive"}[attention]
    assert (config.attention, config.gate) == (attention, attention == "additive")
    assert f"--set attention={other}" in capsys.readouterr().out
    assert (grid_size(config)[0] == 1) == (attention == "hard_monotonic")


def test_few_images_make_small_batches_and_no_label_is_too_long(tmp_path):
    for settings, wanted in {
        ("batch_size=5", "max_target_length=20"): (5, 20),
        (): (16, 60),
    }.items():
        config = configured(folder_of(tmp_path, LINE, "a" * 50), *settings)
        assert (config.batch_size, config.max_target_length) == wanted
    assert configured(folder_of(tmp_path, (2, 1), "a", count=3_000)).batch_size == 64
    config = configured(folder_of(tmp_path / "wide", (1_280, 10), "a" * 290))
    assert (config.batch_size, config.image_width) == (1, 4_096)


def test_a_size_that_images_do_not_have_is_told(tmp_path, capsys):
    split = images.load(folder_of(tmp_path, LINE, "a" * 30), "train")
    config = load_config(PRESETS / "own" / "images.toml")
    ImageSource.make(config, split)
    said = capsys.readouterr().out
    squeezed = "640 x 32 pixels are squeezed to 96 x 32. To keep their shape: --set image_width=640"
    assert squeezed in said
    assert "up to 30 characters, but the model attends to only 24 columns" in said
    ImageSource.make(override(config, ["image_width=640"]), split)
    assert not capsys.readouterr().out


def test_the_size_of_a_jpeg_is_not_its_thumbnails():
    def jpeg(size, mode="RGB", **options):
        return encode(Image.new(mode, size), "JPEG", **options)

    thumbnail = b"Exif\0\0" + jpeg((20, 10))
    for options in ({"exif": thumbnail}, {"progressive": True}, {"mode": "CMYK"}):
        assert size_of(jpeg((333, 77), **options)) == (333, 77)
    for orientation in range(1, 9):  # from 5 on, the image lies on its side
        exif = Image.Exif()
        exif[0x0112] = orientation
        lying = jpeg((30, 70), exif=exif)
        assert size_of(lying) == ImageOps.exif_transpose(Image.open(io.BytesIO(lying))).size
    assert size_of(b"no image") == (0, 0)


def test_the_row_of_labels_has_nearly_all_lengths_and_the_longest(tmp_path, capsys):
    spec, labels = folder_of(tmp_path, (96, 32), "a" * 5, count=40), tmp_path / "labels.tsv"
    longest = labels.read_text().replace("aaaaa", "a" * 9, 1)
    for text, wanted in (
        (labels.read_text(), "up to 5 characters"),
        (longest, "95% have up to 5 characters, the longest 9"),
    ):
        write(labels, text)
        configured(spec)
        assert f"  labels     {wanted}" in capsys.readouterr().out
