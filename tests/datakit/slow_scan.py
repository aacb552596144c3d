"""The contamination scan word by word: a slow obvious reference of its definition. Numbers are not masked."""

import itertools
import math
from collections import Counter

import numpy as np
import polars as pl

from datakit.contamination.channels import CHANNELS
from datakit.contamination.coverage import ContaminationConfig
from datakit.text.canonical_text import canonical_bytes


def item_table(*channels: dict[str, str]) -> pl.DataFrame:
    rows = [
        {"suite": "s", "task": "t", "item_id": f"{i:03d}", **dict.fromkeys(CHANNELS, ""), **fields}
        for i, fields in enumerate(channels)
    ]
    return pl.DataFrame(rows)


def slow_scan(
    texts: list[str], questions: list[str], answers: list[str], config: ContaminationConfig
) -> dict[tuple[int, int], tuple]:
    """The definition, word by word: (tier, coverage, longest run) of every pair of a document and a question that has a tier.
    Answers of at most three words, which match nothing themselves. No number masking.
    """
    n = config.gram_words
    channels = [canonical_bytes(question).decode().split() for question in questions]
    replies = [canonical_bytes(answer).decode().split() for answer in answers]

    def grams(words: list[str]) -> list[tuple[str, ...]]:
        return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

    items_with = Counter(gram for words in channels for gram in set(grams(words)))

    def weight(gram: tuple[str, ...]) -> float:
        long_words = [word for word in gram if len(word.encode()) >= 3 and not word.isdigit()]
        if len(long_words) < config.min_gram_long_words or len(set(gram)) < config.min_gram_distinct_words:
            return 0.0
        count = items_with[gram]
        return 0.0 if count > config.ignored_items else min(1.0, config.common_items / count)

    def credit(words: list[str], shared: set[tuple[str, ...]]) -> list[float]:
        starts = grams(words)
        near = [[g for g in range(max(0, w - n + 1), w + 1) if g < len(starts)] for w in range(len(words))]
        return [max([weight(starts[g]) for g in gs if starts[g] in shared], default=0.0) for gs in near]

    def long_words(words: list[str], held: list[str]) -> int:
        return len({word for word in words if len(word.encode()) >= 3 and not word.isdigit()} & set(held))

    results = {}
    for d, text in enumerate(texts):
        document = canonical_bytes(text).decode().split()
        for c, words in enumerate(channels):
            total = sum(credit(words, set(grams(words))))
            if total < config.min_channel_words - 1e-6:
                aligned = slow_alignment(document, words, replies[c], channels, replies, config, is_matchable=False)
                if aligned is not None:
                    tier, score, run, start, end, _ = aligned
                    held = long_words(words, document[max(start, 0) : max(end, start + len(words))])
                    results[d, c] = ("partial" if held < config.min_long_words - 1 else tier, score, run)
                continue
            of_channel = {gram for gram in grams(words) if weight(gram) > 0}
            hits = [i for i, gram in enumerate(grams(document)) if gram in of_channel]
            windows: list[list[int]] = []
            for hit in hits:
                if not windows or hit - windows[-1][-1] > n + config.gap_words + config.gap_share * len(words):
                    windows.append([])
                windows[-1].append(hit)
            needed = float(config.needed_coverage(np.array(total)))
            measured = []
            for window in windows:
                covered = sum(credit(words, {tuple(document[i : i + n]) for i in window})) / total
                rare = {i for i in window if weight(tuple(document[i : i + n])) == 1}
                held = long_words(words, document[window[0] : window[-1] + n])
                measured.append((covered, slow_run(document, words, rare, n), -window[0], held))
            none = (0.0, 0, 0, 0)
            best = max(measured, default=none)
            longest = max(measured, key=lambda m: (m[1], *m), default=none)
            if best[0] >= needed:
                results[d, c] = ("verbatim" if best[0] >= config.verbatim_coverage else "near", *best)
            elif longest[1] >= config.long_run_words:
                results[d, c] = ("near", *longest)
            elif best[0] >= max(config.partial_share, config.partial_words / total) and best[1] >= config.partial_words:
                results[d, c] = ("partial", *best)
            elif longest[1] >= config.partial_run_words:
                results[d, c] = ("partial", *longest)
            elif longest[1] >= config.fragment_words:
                results[d, c] = ("fragment", *longest)
            allowed = config.min_long_words
            aligned = slow_alignment(document, words, replies[c], channels, replies, config)
            weaker = {"near": ("partial", "fragment", ""), "partial": ("fragment", "")}
            if aligned is not None and results.get((d, c), ("",))[0] in weaker[aligned[0]]:
                tier, score, run, start, end, is_answered = aligned
                held = long_words(words, document[max(start, 0) : max(end, start + len(words))])
                results[d, c] = (tier, score, run, start, held)
                allowed -= is_answered
            if (d, c) in results:
                tier, score, run, _, held = results[d, c]
                results[d, c] = ("partial" if tier == "near" and held < allowed else tier, score, run)
    return results


def slow_alignment(
    document: list[str],
    words: list[str],
    answer: list[str],
    channels: list[list[str]],
    replies: list[list[str]],
    config: ContaminationConfig,
    is_matchable: bool = True,
) -> tuple[str, float, int, int, int, bool] | None:
    """(tier, score, longest run, start, the answer's end, whether it follows) of a channel's best placement, when it flags the
    channel or is half of it.
    """

    def is_seed(gram: list[str]) -> bool:
        def holds(other: list[str]) -> bool:
            return any(other[i : i + len(gram)] == gram for i in range(len(other) - len(gram) + 1))

        num_items = sum(holds(own) or holds(reply) for own, reply in zip(channels, replies, strict=True))
        long_words = [word for word in gram if len(word.encode()) >= 3 and not word.isdigit()]
        content = len(long_words) >= config.min_gram_long_words and len(set(gram)) >= config.min_gram_distinct_words
        return content and num_items <= config.common_items

    def starts_of(n: int) -> set[int]:
        seeds = [(j, words[j : j + n]) for j in range(len(words) - n + 1)]
        places = range(len(document) - n + 1)
        return {i - j for j, seed in seeds for i in places if document[i : i + n] == seed and is_seed(seed)}

    def at(place: int) -> str | None:
        return document[place] if 0 <= place < len(document) else None

    def information_of(word: str) -> float:
        items = [own + reply for own, reply in zip(channels, replies, strict=True)]
        return math.log(1 + len(items) / sum(word in item for item in items))

    def answer_end(start: int) -> int:
        end = start + len(words)
        for place in range(max(end, 0), min(end + config.answer_gap_words + 1, len(document))):
            same = [at(place + k) == word for k, word in enumerate(answer)]
            informed = sum(information_of(word) for word, is_same in zip(answer, same, strict=True) if is_same)
            needed = config.aligned_share * sum(map(information_of, answer))
            if sum(same) >= config.aligned_share * len(answer) and informed >= needed:
                return min(place + len(answer), len(document))
        return 0

    information = [information_of(word) for word in words]
    proves = sum(map(information_of, answer)) >= config.min_answer_information and any(
        len(word) >= 2 and not word.isdigit() for word in answer
    )
    is_varied = len(set(words)) >= min(config.min_channel_words, len(words) - config.max_repeats)
    if not is_matchable:
        proves &= len(words) < config.min_channel_words <= len(words) + len(answer)
    if not (is_matchable or proves) or len(words) > config.max_aligned_words or not is_varied:
        return None
    starts = starts_of(config.seed_words) if is_matchable else set()
    if_answered = starts_of(config.answered_seed_words) if len(words) <= config.max_answered_words else set()
    measured = []
    for start in sorted(starts | if_answered):
        slack = range(-config.align_slack, config.align_slack + 1)
        in_place = [any(at(start + j + shift) == word for shift in slack) for j, word in enumerate(words)]
        informed = sum(i for i, is_in_place in zip(information, in_place, strict=True) if is_in_place) / sum(information)
        runs = itertools.groupby(at(start + j) == word for j, word in enumerate(words))
        run = max((len(list(group)) for same, group in runs if same), default=0)
        score = round(min(sum(in_place) / len(words), informed), 6)
        needed = float(config.needed_alignment(np.array(len(words)))) if start in starts else math.inf
        end = answer_end(start) if proves else 0
        if end:
            needed = min(needed, config.answered_share if is_matchable else config.short_aligned_share)
        partial = max(config.partial_share, config.partial_words / len(words)) if start in starts else math.inf
        if score >= min(needed, partial):
            measured.append((score >= needed, score, -start, run, end))
    if not measured:
        return None
    stands, score, start, run, end = max(measured)
    return "near" if stands else "partial", score, run, -start, end, end > 0


def slow_run(document: list[str], words: list[str], starts: set[int], n: int) -> int:
    def gram_at(text: list[str], place: int) -> list[str]:
        return text[place : place + n]

    best = 0
    for start in starts:
        for at in range(len(words) - n + 1):
            length = 0
            while (
                start + length in starts
                and document[start + length : start + length + n] == words[at + length : at + length + n]
            ):
                length += 1
            best = max(best, length + n - 1 if length else 0)
    return best
