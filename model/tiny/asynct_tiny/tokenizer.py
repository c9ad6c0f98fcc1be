"""A byte-level tokenizer: token n is byte n, so any text can be asked, also as a chat."""

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from asynct_tiny.problems import DELIMITER, QUESTION

PAD_ID = 256
EOS_ID = 257
VOCAB_SIZE = 264  # 258 rounded up to a multiple of 8
MAX_LENGTH = 2048

# A chat is written as the problems are: users ask, answers follow, earlier turns are worked shots.
# The prompt ends in the space before the answer, so that the reply begins with the answer itself.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role != ("assistant" if loop.index is even else "user") -%}
{{- raise_exception("Messages must alternate between user and assistant, the user first; message "
    ~ loop.index ~ " is of role " ~ message.role) -}}
{%- endif -%}
{%- if message.role == "user" -%}
{{- ("" if loop.first else DELIMITER) + QUESTION.replace("{}", message.content) + " " -}}
{%- else -%}
{{- message.content -}}
{%- endif -%}
{%- endfor -%}
""".replace("DELIMITER", repr(DELIMITER)).replace("QUESTION", repr(QUESTION))


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
        chat_template=CHAT_TEMPLATE,
    )
