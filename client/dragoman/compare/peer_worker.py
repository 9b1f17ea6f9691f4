"""CTranslate2 on one side of a comparison: a script for the Python environment that has it, which needs nothing of dragoman.

One JSON object a line: the settings first, answered when the model is loaded; then `{"texts": […]}`, answered with the
translations and how long they took. What fails is answered with `{"error": …}` and ends the process.
"""

import json
import signal
import sys
import time
from pathlib import Path

SOURCE_MODELS = ("source.spm", "sentencepiece.model", "sentencepiece.bpe.model", "spiece.model", "spm.model")


def main() -> None:
    """Load, then translate until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends this process
    try:
        work()
    except ImportError as error:
        answer({"error": f"--peer-python {sys.executable} needs ctranslate2 and sentencepiece: {error}"})
    except Exception as error:
        answer({"error": f"CTranslate2 failed: {error or type(error).__name__}"})


def work() -> None:
    """All that can fail."""
    import ctranslate2
    import sentencepiece

    settings = json.loads(sys.stdin.readline())
    package = Path(settings["model"])
    directory = package / "model" if (package / "model" / "model.bin").is_file() else package
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    given = [Path(path) for path in settings["sentencepiece"]]
    found = given or [package / name for name in SOURCE_MODELS if (package / name).is_file()][:1]
    if not found:
        looked = ", ".join(SOURCE_MODELS)
        answer({"error": f"{package} has no sentencepiece model ({looked}); name it with --spm"})
        return
    source = sentencepiece.SentencePieceProcessor(model_file=str(found[0]))
    translator = ctranslate2.Translator(
        str(directory), compute_type=settings["compute_type"], inter_threads=1, intra_threads=settings["threads"]
    )
    literal = directory != package or "<blank>" in vocabulary(directory)
    after = [] if config.get("add_source_eos") or literal else [config.get("eos_token", "</s>")]
    special = {config.get(name) for name in ("eos_token", "bos_token", "decoder_start_token")}
    answer({"version": ctranslate2.__version__, "compute_type": translator.compute_type})
    for line in sys.stdin:
        request = json.loads(line)
        started = time.perf_counter()
        sources = [[*settings["source_prefix"], *source.encode(text, out_type=str), *after] for text in request["texts"]]
        results = translator.translate_batch(
            sources,
            [settings["target_prefix"]] * len(sources) if settings["target_prefix"] else None,
            beam_size=settings["beam_size"],
            length_penalty=settings["length_penalty"],
            max_batch_size=settings["batch"],
            max_decoding_length=settings["max_length"],
            return_end_token=True,  # so that lengths are counted as dragoman counts them
        )
        skipped = {*special, *settings["target_prefix"]}
        texts = [
            "".join(piece for piece in result.hypotheses[0] if piece not in skipped).replace("\u2581", " ").strip()
            for result in results
        ]
        answer({"texts": texts, "seconds": time.perf_counter() - started})


def vocabulary(directory: Path) -> set[str]:
    """The source's tokens."""
    for name in ("shared_vocabulary.json", "source_vocabulary.json"):
        if (directory / name).is_file():
            return set(json.loads((directory / name).read_text(encoding="utf-8")))
    return set()


def answer(value: dict[str, object]) -> None:
    """One line."""
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
