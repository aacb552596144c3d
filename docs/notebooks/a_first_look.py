# %% [markdown]
# # A first look at a lab
#
# Open this file in a notebook (Jupytext, VS Code, PyCharm) or run it: `.venv/bin/python docs/notebooks/a_first_look.py`.
# It needs a finished ferry (`make ferry`). Each answer is a polars frame.

# %%
import polars as pl

from marin_assets import lab

marin = lab.open()  # MARIN_ROOT, or .marin in the repository; a path or a URL opens another lab
CHECKPOINT = "ferry/runs/smoke/checkpoint"

# %% [markdown]
# ## Scores, with intervals

# %%
scores = marin.scores()
print(scores.select("model", "step", "task", "metric", "value", "low", "high"))

# %% [markdown]
# ## The learning curve

# %%
curve = marin.curve(CHECKPOINT)
print(curve.select("step", "loss_nats").tail())

# %% [markdown]
# ## What went into the checkpoint

# %%
lineage = marin.lineage(CHECKPOINT)
print(lineage.group_by("stage").agg(pl.len().alias("artifacts"), pl.col("bytes").sum()).sort("bytes", descending=True))

# %% [markdown]
# ## Which steps read a document
#
# Any documents of a corpus will do; `item=` asks for those that hold a benchmark item.

# %%
corpus = marin.artifact(str(lineage.filter(pl.col("stage") == "datakit.corpus")["artifact"][0]))
documents = pl.read_parquet(corpus.files(".parquet", under="train/"), columns=["id"])["id"].head(3).to_list()
reads = marin.exposure(CHECKPOINT, documents=documents)
print(reads.group_by("id").agg(pl.col("step").n_unique().alias("steps")))

# %% [markdown]
# ## Any question, in SQL

# %%
cost = marin.query("select stage, sum(cpu_seconds) as cpu_seconds from artifacts group by stage order by 2 desc limit 5")
print(cost)
