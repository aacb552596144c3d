"""A tokenizer like SentencePiece's of Llama 2 and Mistral: words with their space, bytes for all else."""

from tokenizers import Tokenizer, decoders, models, normalizers

SPACE = "\u2581"  # "▁"
BOS, EOS = 1, 2


def spaced_tokenizer(*words: str, with_bytes: bool = True) -> Tokenizer:
    """Ids 0 to 2 are `<unk>`, `<s>` and `</s>`, 3 to 258 the bytes; then the space, letters, and the words behind a space."""
    vocab = {"<unk>": 0, "<s>": BOS, "</s>": EOS}
    vocab |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256) if with_bytes}
    merges: list[tuple[str, str]] = []
    for text in (SPACE, *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:?", SPACE * 2):
        vocab.setdefault(text, len(vocab))
    merges.append((SPACE, SPACE))
    for word in words:
        whole = SPACE
        for letter in word:
            merges.append((whole, letter))
            whole += letter
            vocab.setdefault(whole, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(dict.fromkeys(merges)), byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.encode_special_tokens = True
    return tokenizer
