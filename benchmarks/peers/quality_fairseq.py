"""fairseq, trained for quality_peers.py: python -m peers.quality_fairseq TASK MODEL.

Its commands fairseq-preprocess, -train and -generate, with the recipe for IWSLT'14 German to
English of its examples/translation/README.md, the Transformer's. It has none for the LSTM, which
takes the same but for the architecture's dropout and a rate of 1e-3. The best checkpoint by the
loss of the validation pairs is kept.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from fairseq import options, tasks
from parts.quality import Task, nearest_width, read_lines, serve, timed

# The recipe's warm-up of 4,000 updates would not end in this time; 400 are the preset's.
RECIPE = (
    "--optimizer adam --adam-betas (0.9,0.98) --clip-norm 0.0 --lr-scheduler inverse_sqrt "
    "--warmup-updates 400 --weight-decay 0.0001 --criterion label_smoothed_cross_entropy "
    "--label-smoothing 0.1 --max-tokens 4096"
)

# Otherwise the last batch of a set is left out, where it is not a multiple of 8.
ALL = ["--required-batch-size-multiple", "1"]


def architecture(name: str, units: int) -> list[str]:
    """Options of a model of a width: the architecture for IWSLT'14, cut down."""
    if name == "LSTM":
        sizes = (
            f"--encoder-embed-dim {units} --encoder-hidden-size {units} "
            f"--decoder-embed-dim {units} --decoder-hidden-size {units} "
            f"--decoder-out-embed-dim {units} --dropout 0.1 --lr 1e-3"
        )
        return f"--arch lstm_wiseman_iwslt_de_en {sizes}".split()
    sizes = " ".join(
        f"--{side}-embed-dim {units} --{side}-ffn-embed-dim {2 * units} "
        f"--{side}-attention-heads 4 --{side}-layers 3"  # of 6, or it would be narrow
        for side in ("encoder", "decoder")
    )
    rest = "--share-decoder-input-output-embed --dropout 0.3 --lr 5e-4"
    return f"--arch transformer_iwslt_de_en {sizes} {rest}".split()


def training_options(task: Task, name: str, units: int) -> list[str]:
    """Arguments of fairseq-train."""
    return [
        task.own("binary"),
        *(["--source-lang", "source", "--target-lang", "target", "--cpu", "--num-workers", "0"]),
        *architecture(name, units),
        *RECIPE.split(),
        *ALL,
        *("--save-dir", task.own("model"), "--seed", str(task.seed)),
        *("--stop-time-hours", str(task.seconds / 3600), "--no-epoch-checkpoints"),
        *(["--log-format", "simple", "--log-interval", "100"]),
    ]


def count(task: Task, name: str, units: int) -> int:
    """Weights of the model of a width."""
    parser = options.get_training_parser()
    arguments = options.parse_args_and_arch(parser, training_options(task, name, units))
    model = tasks.setup_task(arguments).build_model(arguments)
    return sum(weight.numel() for weight in model.parameters())


def command(name: str, *arguments: str) -> str:
    """Run one of its commands; return what it printed, which stands in the log, too."""
    environment = {**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}  # its own checkpoints
    done = subprocess.run(
        [sys.executable, "-P", "-m", "peers.fairseq_command", name, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    print(done.stdout, flush=True)
    return done.stdout


def preprocess(task: Task) -> None:
    """Let it read the texts."""
    dictionaries = []
    for side in ("source", "target"):
        path = task.own(f"vocabulary.{side}")
        lines = [f"{word} 1\n" for word in read_lines(task.file(f"vocabulary.{side}"))]
        Path(path).write_text("".join(lines))
        dictionaries.append(path)
    command(
        "preprocess",
        *["--source-lang", "source", "--target-lang", "target", "--workers", "1"],
        *("--trainpref", task.file("train"), "--validpref", task.file("valid")),
        *("--testpref", task.file("dev"), "--destdir", task.own("binary")),
        *("--srcdict", dictionaries[0], "--tgtdict", dictionaries[1]),
    )


def run(task: Task, name: str) -> dict[str, float | None]:
    """Train and translate."""
    preprocess(task)
    units = nearest_width(lambda width: count(task, name, width), task.weights)
    log = []

    def train() -> None:
        log.append(command("train", *training_options(task, name, units)))

    seconds = timed(train)
    updates = re.findall(r"num_updates[ =:|]+(\d+)", log[0])
    found = []

    def translate() -> None:
        kept = task.own("model/checkpoint_best.pt")
        search = ["--beam", str(task.beam_width), "--batch-size", str(task.batch_size)]
        limits = ["--max-len-a", "0", "--max-len-b", str(task.longest)]
        scoring = ["--scoring", "sacrebleu"]  # needs no extension
        languages = ["--source-lang", "source", "--target-lang", "target", "--cpu"]
        found.append(
            command(
                "generate",
                task.own("binary"),
                "--path",
                kept,
                *languages,
                *search,
                *limits,
                *ALL,
                *scoring,
            )
        )

    translation_s = timed(translate)
    lines = dict(re.findall(r"^H-(\d+)\t\S+\t(.*)$", found[0], re.MULTILINE))
    hypotheses = [lines.get(str(i), "") for i in range(len(read_lines(task.file("dev.source"))))]
    Path(task.own("hypotheses")).write_text("\n".join(hypotheses) + "\n")
    return {
        "weights": count(task, name, units),
        "seconds": seconds,
        "steps": int(updates[-1]) if updates else None,
        "epochs": None,
        "translation_s": translation_s,
    }


if __name__ == "__main__":
    serve(run)
