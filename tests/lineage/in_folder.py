"""The least that a table engine needs of a writer (`lineage.tables.shuffle.Shards`)."""

from dataclasses import dataclass
from pathlib import Path


@dataclass
class InFolder:
    """Runs shards one after another in this process, without their records."""

    folder: Path

    def map_shards(self, function, tasks, workers=None, *, in_runs=False, lazy=False):
        return {name: function(self.folder, *arguments) for name, arguments in tasks.items()}

    def bring(self, *paths):
        pass
