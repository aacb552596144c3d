"""lm-eval's half of `lm_eval_yaml.py`; runs in a separate environment, without this lab's packages.

    PYTHONPATH=tests/evals PEER/bin/python benchmarks/lm_eval_yaml_peer.py FOLDER OUT.json

FOLDER holds the documents (`lm_eval_cases.write_documents`). Runs lm-eval's own YAML files over them, with the small
model of `tests/evals/lm_eval_cases.py` behind lm-eval's model interface, and writes {task: {metric: value}}.
"""

import json
import sys
from pathlib import Path

import lm_eval
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager
from lm_eval_cases import NUM_SHOTS, START, generate, score

FILES = {
    "arc_easy": "arc/arc_easy.yaml",
    "gsm8k": "gsm8k/gsm8k.yaml",
    "hellaswag": "hellaswag/hellaswag.yaml",
    "lambada_openai": "lambada/lambada_openai.yaml",
    "piqa": "piqa/piqa.yaml",
    "winogrande": "winogrande/default.yaml",
}
INSTALLED = Path(lm_eval.__file__).parent / "tasks"


class SmallModel(LM):
    """The model of `lm_eval_cases.py`: one symbol a byte."""

    def loglikelihood(self, requests, disable_tqdm: bool = False):
        del disable_tqdm
        answers = []
        for request in requests:
            context, continuation = request.args
            tail = continuation.encode()
            nats, greedy = score([START, *context.encode(), *tail], len(tail))
            answers.append((-float(nats.sum()), greedy))
        return answers

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False):
        raise NotImplementedError("no task of the comparison asks for it")

    def generate_until(self, requests, disable_tqdm: bool = False):
        del disable_tqdm
        return [generate(request.args[0], request.args[1]["until"]) for request in requests]


def main() -> None:
    folder, out = map(Path, sys.argv[1:])
    results: dict[str, dict[str, float]] = {}
    for task, num_shots in NUM_SHOTS.items():
        files = {"train": str(folder / f"{task}.shots.jsonl"), "test": str(folder / f"{task}.jsonl")}
        splits = {"training_split": "train", "validation_split": None, "test_split": "test", "fewshot_split": "train"}
        config = {
            "include": str(INSTALLED / FILES[task]),
            "task": f"parity_{task}",
            "dataset_path": "json",
            "dataset_name": None,
        }
        config |= {"dataset_kwargs": {"data_files": files}, "num_fewshot": num_shots, "fewshot_config": {"sampler": "first_n"}}
        (folder / f"parity_{task}.yaml").write_text(json.dumps(config | splits))
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    evaluated = lm_eval.simple_evaluate(SmallModel(), tasks=[f"parity_{task}" for task in NUM_SHOTS], task_manager=manager)
    for task in NUM_SHOTS:
        metrics = evaluated["results"][f"parity_{task}"]
        results[task] = {
            key.removesuffix(",none"): value
            for key, value in metrics.items()
            if isinstance(value, float) and "stderr" not in key
        }
    out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
