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


def examples(split):
    return zip(split.pairs(), split.boxes, strict=True)


def boxed(image, text, boxes):
    """Each character of a string of digits with the levels in its box, `(8, 8)`."""
    levels = pixels(image) * (16 / 255)
    for character, (left, top, right, bottom) in zip(text, boxes, strict=True):
        rows, columns = (round(top * 32), round(bottom * 32)), (round(left * 72), round(right * 72))
        yield character, levels[slice(*rows), slice(*columns)]


@pytest.mark.parametrize("test", [False, True])
def test_each_box_holds_its_digit_and_no_test_digit_is_in_training(test, monkeypatch):
    monkeypatch.setattr(digits, "_DISTORTION", np.zeros(6))
    bank = load_digits()
    cut = int(len(bank.images) * 0.7)
    for (image, text), boxes in examples(digits.make(11, seed=5, test=test)):
        assert 5 <= len(text) <= 9
        for character, box in boxed(image, text, boxes):
            nearest = np.abs(bank.images - box).sum(axis=(1, 2)).argmin()
            assert str(bank.target[nearest]) == character
            assert (nearest >= cut) == test


def test_digits_of_training_are_distorted_and_still_read_as_what_they_are():
    bank = load_digits()
    made = examples(digits.make(40, seed=5))
    found = [pair for each, boxes in made for pair in boxed(*each, boxes)]
    names, boxes = np.array([name for name, _ in found]), np.array([box for _, box in found])
    distances = np.abs(bank.images[:, None] - boxes).mean(axis=(2, 3)).min(axis=0)
    assert (distances > 0.5).all()  # the noise alone moves them by 0.2
    reader = SVC(gamma=0.001).fit(bank.data, bank.target.astype(str))
    assert (reader.predict(boxes.reshape(len(boxes), -1)) == names).mean() > 0.8


@pytest.mark.parametrize("make", [digits.make, captchas._make_chunk])
def test_the_same_seed_gives_the_same_images_and_another_gives_others(make):
    def run(seed):
        return make(3, [seed, 0] if make is captchas._make_chunk else seed)

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_captchas_are_those_that_the_package_makes():
    for seed in (8, 7):
        ((image, made, boxes),) = captchas._make_chunk(1, [seed, 0])
        assert 4 <= len(made) <= 6
        assert not set(made) & set("0O1I")
        assert len(boxes) == len(made)
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
    (example,) = digits.make(1, seed=2).sources
    for count in (2, 90):
        root = tmp_path / str(count)
        for number in range(count):
            (root / str(number)).mkdir(parents=True)
            (root / str(number) / "crop.png").write_bytes(example)
        lines = [f"{number}/crop.png\t7\u2028{number}\n" for number in range(count)]
        (root / "labels.tsv").write_text("".join(lines), encoding="utf-8")
        train, dev = images.load_training(f"images:{root}")
        assert len(dev.sources) >= 1
        assert {*train.sources, *dev.sources} == {*root.glob("*/crop.png")}
        assert len(train.sources) + len(dev.sources) == count
    (tmp_path / "2" / "labels.tsv").write_text(f"0/crop.png\t7\n{root}/1/crop.png\tcafe\u0301\n")
    train, dev = images.load_training(f"images:{tmp_path / '2'}")
    elsewhere = {str(file): text for file, text in train.pairs() + dev.pairs()}
    assert elsewhere == {f"{tmp_path}/2/0/crop.png": "7", f"{root}/1/crop.png": "café"}
    (tmp_path / "2" / "labels.tsv").write_text("0/crop.png\t7\n")
    with pytest.raises(CorpusError, match="too few images to hold out a dev set: 1"):
        images.load_training(f"images:{tmp_path / '2'}")


def test_a_name_has_its_splits_and_more_of_one_begins_as_less_of_it():
    few, more = (images.load("digits", "test", limit=limit) for limit in (2, 4))
    assert few.sources == more.sources[:2]
    assert few.boxes == more.boxes[:2]
    assert images.load("digits", "dev", limit=2).sources != few.sources
    with pytest.raises(CorpusError, match="digits has no split 'tets'; it has train, dev, test"):
        images.load("digits", "tets")
    with pytest.raises(CorpusError, match="Unknown images 'mnist'; expected images:PATH or one of"):
        images.load("mnist", "train")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (None, "has no labels.tsv, a line `file TAB text` for each image.* it has 1 images"),
        ("", "labels.tsv is empty"),
        ("a.png 7\n", "line 1: write the file, a tab, the text"),
        ("a.png\t7\n\nb.png\t8\n" * 2, "line 3: there is no file .*b.png. 2 of 4 lines have"),
        ("a.png\t \n", "line 1: write the file, a tab, the text"),
        ("a.png\t7\tAnna\n", "line 1: write the file, a tab, the text"),
    ],
)
def test_a_folder_that_is_none_of_images_is_one_clear_line(labels, said, tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    if labels is not None:
        (tmp_path / "labels.tsv").write_text(labels)
    with pytest.raises(CorpusError, match=said):
        images.load(f"images:{tmp_path}", "train")
    with pytest.raises(CorpusError, match="is no folder of images"):
        images.load(f"images:{tmp_path}/none", "train")


def test_lines_without_an_image_are_left_out_and_told(tmp_path, capsys):
    folder_of(tmp_path, (5, 3), "7", count=30)
    good = (tmp_path / "labels.tsv").read_text()
    (tmp_path / "labels.tsv").write_text(f"file\ttext\n{good}none.png\t7\n0.png\t\n")
    train, dev = images.load_training(f"images:{tmp_path}")
    assert (len(train.sources) + len(dev.sources), train.unusable, dev.unusable) == (30, 3, 0)
    images.load(f"images:{tmp_path}", "test")
    (said,) = capsys.readouterr().out.splitlines()
    assert "line 1: there is no file" in said
    assert ". 3 of 33 lines have no image and are left out" in said
    (tmp_path / "new.png").touch()  # after the labels were read
    images.load(f"images:{tmp_path}", "test")
    assert (
        f"no text for 1 images of its folder, for example {tmp_path}/new.png"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(("name", "form"), [("labels.tsv", "excel-tab"), ("labels.csv", "excel")])
def test_labels_in_quotes_are_read_as_those_of_texts(tmp_path, name, form):
    texts = ["no", 'a "b" c', "x\ty, z", "é"] * 9
    for number in range(len(texts)):
        (tmp_path / f"{number}.png").write_bytes(b"")
    with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
        rows = [(f"{number}.png", text) for number, text in enumerate(texts)]
        csv.writer(file, form).writerows(rows)
    split = images.load(f"images:{tmp_path}", "train")
    assert [path.name for path in split.sources] == [name for name, _ in rows]
    assert split.references == [[text.replace("\t", " ")] for text in texts]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("labels.tsv", "{},{}"),
        ("labels.tsv", '"{}";"{}"'),
        ("labels.tsv", "{} {}"),
        ("labels.csv", "{};{}"),
        ("labels.csv", "{}; {},5"),
        ("labels.csv", "{} | {}"),
        ("labels.csv", "{}\t{}"),
    ],
)
def test_another_separator_of_labels_is_told_with_the_command_that_repairs_it(tmp_path, name, line):
    folder = tmp_path / "my images"
    folder_of(folder, (5, 3), "7", count=31)
    (folder / "labels.tsv").unlink()
    names = [f"{number}.png" for number in range(31)]
    lines = (line.format(each, f"a{number}") for number, each in enumerate(names))
    (folder / name).write_text("".join(f"{each}\n" for each in lines))
    wanted = "tabs" if name == "labels.tsv" else "commas"
    with pytest.raises(CorpusError, match=f"They have .* instead of {wanted}. To ") as error:
        images.load(f"images:{folder}", "train")
    command = re.search(f"instead of {wanted}[.] To .*?: (.*)", str(error.value))[1]
    subprocess.run(["bash", "-c", command], check=True)
    split = images.load(f"images:{folder}", "train")
    assert [path.name for path in split.sources] == names
    more = ",5" if ",5" in line else ""
    assert split.references == [[f"a{number}{more}"] for number in range(31)]


def test_images_with_two_texts_are_counted(tmp_path, capsys):
    spec = folder_of(tmp_path, (5, 3), "7", count=31)
    with (tmp_path / "labels.tsv").open("a") as file:
        file.write("3.png\t7\n")
    images.load(spec, "train")
    assert capsys.readouterr().out == ""
    with (tmp_path / "labels.tsv").open("a") as file:
        file.write("3.png\t\u200b8\n./5.png\t9\n5.png\t10\n")
    images.load(spec, "train")
    said = capsys.readouterr().out
    assert "2 images have two texts or more" in said
    assert f"{tmp_path}/3.png: 7 and <U+200B>8\n" in said


def folder_of(path, size, label, count=3):
    path.mkdir(exist_ok=True)
    for number in range(count):
        Image.new("L", size, 255 - number).save(path / f"{number}.png")
    names = sorted(each.name for each in path.glob("[0-9]*"))
    (path / "labels.tsv").write_text("".join(f"{name}\t{label}\n" for name in names))
    return f"images:{path}"


def configured(spec, *settings, options=()):
    """The configuration of `--data SPEC`, with these settings and options."""
    parser = Parser(prog="train")
    add_configuration(parser)
    words = [word for setting in settings for word in ("--set", setting)]
    return configuration(parser.parse_args(["--data", spec, *words, *options]))


@pytest.mark.parametrize("spec", ["images:folder", "events:visits.csv"])
@pytest.mark.parametrize("option", ["--dev", "--test"])
def test_a_part_that_is_fixed_takes_no_option(spec, option):
    with pytest.raises(
        UsageError,
        match=r"--dev and --test work only for texts\. .* these (images|examples)\. To score other",
    ):
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


@pytest.mark.parametrize(
    ("size", "label", "settings", "attention"),
    [
        ((640, 32), "a" * 25, [], "hard_monotonic"),
        ((200, 32), "a" * 12, [], "hard_monotonic"),
        ((300, 28), "住所" * 5, [], "hard_monotonic"),
        ((72, 32), "1" * 9, [], "additive"),  # two rows
        ((320, 320), "a" * 25, [], "additive"),
        ((640, 32), "שלום" * 6, [], "additive"),  # from right to left
        ((96, 32), "7", [], "additive"),
        ((640, 32), "a" * 25, ["attention=additive"], "additive"),
        ((640, 32), "a" * 25, ["gate=true"], "additive"),
        ((640, 32), "a" * 25, ["convolutions=8:2x2"], "additive"),
        ((640, 32), "a" * 25, ["image_height=48"], "hard_monotonic"),
        ((640, 32), "a" * 25, ["image_height=80"], "hard_monotonic"),
        ((320, 320), "a" * 25, ["attention=hard_monotonic"], "hard_monotonic"),
    ],
)
def test_lines_of_text_are_read_in_order(size, label, settings, attention, tmp_path, capsys):
    config = configured(folder_of(tmp_path, size, label), *settings)
    other = {"additive": "hard_monotonic", "hard_monotonic": "additive"}[attention]
    assert (config.attention, config.gate) == (attention, attention == "additive")
    assert f"--set attention={other}" in capsys.readouterr().out
    assert (grid_size(config)[0] == 1) == (attention == "hard_monotonic")


def test_few_images_make_small_batches_and_no_label_is_too_long(tmp_path):
    config = configured(folder_of(tmp_path, (640, 32), "a" * 50))
    assert (config.batch_size, config.max_target_length) == (16, 60)
    config = configured(f"images:{tmp_path}", "batch_size=5", "max_target_length=20")
    assert (config.batch_size, config.max_target_length) == (5, 20)
    assert configured(folder_of(tmp_path, (2, 1), "a", count=3_000)).batch_size == 64
    config = configured(folder_of(tmp_path / "wide", (1_280, 10), "a" * 290))
    assert (config.batch_size, config.image_width) == (1, 4_096)


def test_a_size_that_images_do_not_have_is_told(tmp_path, capsys):
    split = images.load(folder_of(tmp_path, (640, 32), "a" * 30), "train")
    config = load_config(PRESETS / "own" / "images.toml")
    ImageSource.make(config, split)
    said = capsys.readouterr().out
    assert (
        "640 x 32 pixels are squeezed to 96 x 32. To keep their shape: --set image_width=640"
        in said
    )
    assert "up to 30 characters, but the model attends to only 24 columns" in said
    ImageSource.make(override(config, ["image_width=640"]), split)
    assert not capsys.readouterr().out


def test_the_size_of_a_jpeg_is_not_its_thumbnails():
    def jpeg(size, **options):
        file = io.BytesIO()
        Image.new("RGB", size).save(file, "JPEG", **options)
        return file.getvalue()

    thumbnail = b"Exif\0\0" + jpeg((20, 10))
    assert size_of(jpeg((333, 77), exif=thumbnail)) == (333, 77)
    assert size_of(jpeg((333, 77), progressive=True)) == (333, 77)
    for orientation in range(1, 9):  # from 5 on, the image lies on its side
        exif = Image.Exif()
        exif[0x0112] = orientation
        upright = Image.open(io.BytesIO(jpeg((30, 70), exif=exif)))
        assert size_of(jpeg((30, 70), exif=exif)) == ImageOps.exif_transpose(upright).size
    cmyk = io.BytesIO()
    Image.new("CMYK", (5, 7)).save(cmyk, "JPEG")
    assert size_of(cmyk.getvalue()) == (5, 7)
    assert size_of(b"no image") == (0, 0)


def test_the_row_of_labels_has_nearly_all_lengths_and_the_longest(tmp_path, capsys):
    spec, labels = folder_of(tmp_path, (96, 32), "a" * 5, count=40), tmp_path / "labels.tsv"
    configured(spec)
    assert "  labels     up to 5 characters" in capsys.readouterr().out
    labels.write_text(labels.read_text().replace("aaaaa", "a" * 9, 1))
    configured(spec)
    assert "  labels     95% have up to 5 characters, the longest 9" in capsys.readouterr().out
