"""The size of the replay: all its numbers are here."""

from dataclasses import dataclass

from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay


@dataclass(frozen=True)
class Scale:
    """Sizes of the data, the model and the runs. No number is tuned to a result."""

    general: tuple[str, ...]
    """Sources of the catalogue that need no network; the first is also a block of the phase-shift data."""
    num_leaked: int
    """GSM8K test items in `test.json`."""
    num_control: int
    """GSM8K test items that are measured and not leaked."""
    max_item_chars: int
    """Only items whose question and solution together are this long or shorter, so that they fit into a context."""
    num_train_problems: int
    vocab_size: int
    model: LlamaConfig
    batch_size: int
    seq_len: int
    base_steps: int
    cooldown_steps: int
    math_share: float
    """Weight of the bundle in the cooldown. Bison's was 1 %; a model a millionth of its size needs the leak more often."""
    block_sequences: int
    """Most sequences in one block of the phase-shift data."""
    window_batches: int
    """Batches over which the composition of what is read is counted."""
    shuffle_keys: int
    """Mixture seeds over which a shuffle's batch composition is measured."""
    train_shuffles: bool
    """Whether the phase shift is trained too, not only counted."""
    judges_leak: bool
    """Whether the runs are long enough that the leak must show beyond the controls. If not, the page reports it and does not
    judge it. In the small replay the interval of 12 items reaches above zero (-0.052 [-0.111, +0.005] bits per byte)."""
    peak_learning_rate: float = 4e-3

    def base(self) -> RunSpec:
        """The run that both cooldowns start from: warm-up, then a plateau, like a pretraining that has not ended."""
        return RunSpec(
            name="base",
            model=self.model,
            optimizer=AdamWConfig(),
            schedule=WarmupStableDecay(self.peak_learning_rate, warmup_steps=max(2, self.base_steps // 10), decay_frac=0.0),
            batch_size=self.batch_size,
            seq_len=self.seq_len,
            num_steps=self.base_steps,
            seed=1,
            save_every_steps=self.base_steps,
        )

    def cooldown(self, name: str, num_steps: int | None = None) -> RunSpec:
        """A warm start that keeps the moments, with a linear decay, like Bison's and Mantis's."""
        steps = num_steps or self.cooldown_steps
        return RunSpec(
            name=name,
            model=self.model,
            optimizer=AdamWConfig(),
            schedule=WarmupStableDecay(self.peak_learning_rate, warmup_steps=0, decay_frac=1.0),
            batch_size=self.batch_size,
            seq_len=self.seq_len,
            num_steps=steps,
            seed=2,
            save_every_steps=max(1, steps // 2),
            start=WarmStart(optimizer="carried"),
        )


def full() -> Scale:
    """`make bison`: 0.6 million parameters, six runs, a few minutes of two idle cores."""
    return Scale(
        general=("vendored_prose", "python_topics"),
        num_leaked=40,
        num_control=40,
        max_item_chars=640,
        num_train_problems=160,
        vocab_size=2048,
        model=LlamaConfig(
            vocab_size=2048, hidden_dim=96, intermediate_dim=256, num_layers=4, num_heads=4, num_kv_heads=2, max_seq_len=256
        ),
        batch_size=8,
        seq_len=256,
        base_steps=120,
        cooldown_steps=100,
        math_share=0.6,
        block_sequences=240,
        window_batches=4,
        shuffle_keys=300,
        train_shuffles=True,
        judges_leak=True,
    )


def small() -> Scale:
    """What the tests run: seconds, not minutes."""
    return Scale(
        general=("python_topics",),
        num_leaked=12,
        num_control=12,
        max_item_chars=420,
        num_train_problems=30,
        vocab_size=512,
        model=LlamaConfig(
            vocab_size=512, hidden_dim=48, intermediate_dim=96, num_layers=2, num_heads=2, num_kv_heads=1, max_seq_len=256
        ),
        batch_size=4,
        seq_len=128,
        base_steps=20,
        cooldown_steps=40,
        math_share=0.6,
        block_sequences=60,
        window_batches=2,
        shuffle_keys=60,
        train_shuffles=False,
        judges_leak=False,
    )
