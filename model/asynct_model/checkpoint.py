"""Names and shapes of an AsyncT checkpoint's tensors: the one list that every loader checks by."""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from asynct_model.configuration import FINAL_DYHT, LAYER_DYHT, AsyncTConfig

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_LISTED = 8  # names shown of a long list


def expected_tensors(config: AsyncTConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor that a checkpoint of `config` holds."""
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    q_size = config.num_attention_heads * head_dim
    kv_size = config.num_key_value_heads * head_dim
    layer = {
        "self_attn.q_proj.weight": (q_size, hidden),
        "self_attn.k_proj.weight": (kv_size, hidden),
        "self_attn.v_proj.weight": (kv_size, hidden),
        "self_attn.o_proj.weight": (hidden, q_size),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    for name in ("sigma", "alpha", "gamma"):
        layer[f"self_attn.{name}"] = (config.num_attention_heads,)
    for name in LAYER_DYHT:
        layer |= _dyht_tensors(name, config)
    tensors = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for index in range(config.num_hidden_layers):
        tensors |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    tensors |= {f"model.{name}": shape for name, shape in _dyht_tensors(FINAL_DYHT, config).items()}
    if not config.tie_word_embeddings:
        tensors["lm_head.weight"] = (config.vocab_size, hidden)
    return tensors


def check(tensors: Mapping[str, tuple[int, ...]], config: AsyncTConfig) -> None:
    """Checks a checkpoint's tensors, as name -> shape.

    Raises:
        ValueError: tensors are missing, are not the model's, or have another shape; all are named.
    """
    check_shapes(tensors, expected_tensors(config))


def check_shapes(
    tensors: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> None:
    """Checks tensors, as name -> shape, against those expected; raises as `check`."""
    faults = []
    if missing := sorted(expected.keys() - tensors.keys()):
        faults.append(f"missing: {_listed(missing)}")
    if extra := sorted(tensors.keys() - expected.keys()):
        faults.append(f"not part of the model: {_listed(extra)}")
    misshapen = [
        f"{name} is {list(tensors[name])}, must be {list(shape)}"
        for name, shape in expected.items()
        if name in tensors and tuple(tensors[name]) != shape
    ]
    if misshapen:
        faults.append(f"of the wrong shape: {_listed(misshapen)}")
    if faults:
        raise ValueError("the checkpoint does not fit its configuration; " + "; ".join(faults))


def read_shapes(directory: str | Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of a checkpoint directory's tensors, from the safetensors headers alone.

    Raises:
        FileNotFoundError: there are no weights, or a file that the index names is missing.
        ValueError: a file is cut short or damaged, or two files hold the same tensor.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weight_files(Path(directory)):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():
                    if name in shapes:
                        raise ValueError(f"{path} holds {name}, which another file also holds")
                    shapes[name] = tuple(file.get_slice(name).get_shape())
        except SafetensorError as error:
            raise ValueError(f"{path} is cut short or damaged: {error}") from error
    return shapes


def check_directory(directory: str | Path, config: AsyncTConfig) -> None:
    """`check` on the files of a checkpoint directory; raises what `read_shapes` and `check` do."""
    try:
        check(read_shapes(directory), config)
    except ValueError as error:
        raise ValueError(f"{directory}: {error}") from error


def weight_files(directory: Path) -> list[Path]:
    """The files of a checkpoint directory's weights; FileNotFoundError names a missing one."""
    index = directory / INDEX_FILE
    if index.exists():
        names = json.loads(index.read_text())["weight_map"].values()
        files = [directory / name for name in sorted(set(names))]
    else:
        files = [directory / WEIGHTS_FILE]
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing")
    return files


def _dyht_tensors(name: str, config: AsyncTConfig) -> dict[str, tuple[int]]:
    alpha, gamma = config.dyht_sizes(name)
    return {f"{name}.alpha": (alpha,), f"{name}.gamma": (gamma,)}


def _listed(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
