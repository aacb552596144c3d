"""Where a document holds the answer of a question right behind it.

A short question has few words, and 12 % of edits leave too few of them in place: what remains is a phrase that any text may
hold. The answer behind it is a witness of its own. With it `WindowRules.answered_share` of the question is enough, and
shorter seeds may place it. An answer of numbers alone, or of words that many items have, follows formulas and phrases by
chance, so it counts for nothing.

A question of fewer words than can be matched is found with its answer alone: both together have as many words as the
shortest question that is found without one. It stays `unknown` where it is not found, as its copy may stand alone.
"""

import numpy as np
import polars as pl

from datakit.text.compiled import compiled
from datakit.text.ngram_index import Floats, Ints, UInt64s


def answer_channels(channels: pl.DataFrame) -> Ints:
    """Return int64 [channels]: for each question the row of its item's answer, and -1 elsewhere."""
    rows = channels.select("item", "channel").with_row_index("row")
    answers = rows.filter(channel="answer").select("item", answer=pl.col("row").cast(pl.Int64), channel=pl.lit("question"))
    joined = rows.join(answers, on=["item", "channel"], how="left", maintain_order="left")
    return joined["answer"].fill_null(-1).to_numpy()


@compiled
def answer_ends(
    words: UInt64s,
    bounds: Ints,
    placed: Ints,
    answers: Ints,
    hashes: UInt64s,
    information: Floats,
    channel_bounds: Ints,
    gap: int,
    share: float,
) -> Ints:
    """Return int64 [placements]: the word after the answer that follows a placed question, and 0 if none does.

    `words` and `bounds`: the words of all documents, flat. `placed` [placements, 3]: document, channel, start. `answers`
    [channels]: `answer_channels`. `hashes` and `information` [words of the channels], `channel_bounds` [channels + 1]. At
    most `gap` words lie between the question's end and the answer. `share` of the answer's words, and of their information,
    are in place.
    """
    ends = np.zeros(placed.shape[0], np.int64)
    for row in range(placed.shape[0]):
        document, channel, start = placed[row, 0], placed[row, 1], placed[row, 2]
        answer = answers[channel]
        if answer < 0:
            continue
        first, last = channel_bounds[answer], channel_bounds[answer + 1]
        behind = start + channel_bounds[channel + 1] - channel_bounds[channel]
        for place in range(max(behind, bounds[document]), min(behind + gap + 1, bounds[document + 1])):
            in_place, known, known_in_place = 0, 0.0, 0.0
            for word in range(first, last):
                at = place + word - first
                known += information[word]
                if at < bounds[document + 1] and words[at] == hashes[word]:
                    in_place += 1
                    known_in_place += information[word]
            if in_place >= share * (last - first) and known_in_place >= share * known:
                ends[row] = min(place + last - first, bounds[document + 1])
                break
    return ends
