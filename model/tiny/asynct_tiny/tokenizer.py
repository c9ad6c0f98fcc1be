"""A byte-level tokenizer: token n is byte n, so any text can be asked."""

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

PAD_ID = 256
EOS_ID = 257
VOCAB_SIZE = 264  # 258 rounded up to a multiple of 8
MAX_LENGTH = 2048


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, <pad> and <eos>; nothing is added, and their names in a text are text."""
    vocabulary = {character: byte for byte, character in bytes_to_unicode().items()}
    tokenizer = Tokenizer(BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<pad>", "<eos>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
    )
