"""The AsyncT configuration: shapes and the settings of gate and DyHT, checked on creation."""

from transformers import PreTrainedConfig

LAYER_DYHT = (
    "input_layernorm",
    "self_attn.q_norm",
    "self_attn.k_norm",
    "post_attn_layernorm",
    "pre_mlp_layernorm",
)
FINAL_DYHT = "norm"

_PRESETS = {
    "asynct-0.6b": dict(
        num_hidden_layers=35,
        hidden_size=1024,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=128,
        intermediate_size=3072,
    ),
    "asynct-1.7b": dict(
        num_hidden_layers=28,
        hidden_size=2048,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=6144,
    ),
}


class AsyncTConfig(PreTrainedConfig):
    """Configuration of an AsyncT model.

    Beyond the usual fields:

    Attributes:
        attention_window: K, the number of scores the high-pass average runs over (>= 1).
        attention_weights: the K weights of that average; None is 1/K each.
        attention_relu_pre: whether scores pass a ReLU before the average.
        attention_clip: (clip_min, clip_max) of the gate.
        attention_scale: factor on q.k; None is 1/head_dim.
        dyht_clip: (clip_min, clip_max) of every DyHT.
        scalar_dyht: DyHT parameters of shape [1], the others being per channel: a name inside a
            layer ("self_attn.q_norm.gamma") or the final norm's ("norm.alpha").

    Raises:
        TypeError, ValueError: a field has the wrong type or a value that is not allowed.
    """

    model_type = "asynct"
    keys_to_ignore_at_inference = ["past_key_values"]
    default_theta = 1_000_000.0

    vocab_size: int = 151936
    hidden_size: int = 1024
    intermediate_size: int = 3072
    num_hidden_layers: int = 35
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 128
    hidden_act: str = "relu"
    max_position_embeddings: int = 32768
    initializer_range: float = 0.02
    use_cache: bool = True
    tie_word_embeddings: bool = True
    rope_parameters: dict | None = None
    attention_window: int = 3
    attention_weights: tuple | list | None = None
    attention_relu_pre: bool = True
    attention_clip: tuple | list = (0.0, 1.0)
    attention_scale: float | None = None
    dyht_clip: tuple | list = (-1.0, 1.0)
    scalar_dyht: tuple | list = ("self_attn.q_norm.gamma", "self_attn.k_norm.gamma")
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs):
        for name in ("attention_weights", "attention_clip", "dyht_clip", "scalar_dyht"):
            if isinstance(getattr(self, name), list):  # as JSON has them
                setattr(self, name, tuple(getattr(self, name)))
        super().__post_init__(**kwargs)
        self._check_shapes()
        self._check_attention()
        self._check_dyht()

    @classmethod
    def preset(cls, name: str, **overrides) -> "AsyncTConfig":
        """The configuration of a published size: "asynct-0.6b" or "asynct-1.7b"."""
        if name not in _PRESETS:
            raise ValueError(f"preset is {name!r}; allowed are {', '.join(_PRESETS)}")
        return cls(**{**_PRESETS[name], **overrides})

    @property
    def gate_settings(self) -> dict:
        """The arguments of `GateParams` that are the same for every layer and head."""
        return dict(
            scale=self.attention_scale,
            window=self.attention_window,
            weights=self.attention_weights,
            relu_pre=self.attention_relu_pre,
            clip=self.attention_clip,
        )

    def dyht_sizes(self, name: str) -> tuple[int, int]:
        """Lengths of (alpha, gamma) of the DyHT `name`, one of LAYER_DYHT or FINAL_DYHT."""
        channels = self.head_dim if name.startswith("self_attn.") else self.hidden_size
        alpha, gamma = (
            1 if f"{name}.{part}" in self.scalar_dyht else channels for part in ("alpha", "gamma")
        )
        return alpha, gamma

    def _check_shapes(self):
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "max_position_embeddings",
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is {value!r}; it must be an int")
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads is {self.num_attention_heads}; it must be a multiple of "
                f"num_key_value_heads, {self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; RoPE needs an even number")
        if self.hidden_act != "relu":
            raise ValueError(f"hidden_act is {self.hidden_act!r}; AsyncT's MLP is 'relu' only")
        if (rope_type := self.rope_parameters.get("rope_type", "default")) != "default":
            raise ValueError(f"rope_parameters has rope_type {rope_type!r}; allowed is 'default'")

    def _check_attention(self):
        if isinstance(self.attention_window, bool) or not isinstance(self.attention_window, int):
            raise TypeError(f"attention_window is {self.attention_window!r}; it must be an int")
        if self.attention_window < 1:
            raise ValueError(f"attention_window is {self.attention_window}; it must be at least 1")
        if self.attention_weights is not None:
            _check_numbers("attention_weights", self.attention_weights, self.attention_window)
        if not isinstance(self.attention_relu_pre, bool):
            raise TypeError(f"attention_relu_pre is {self.attention_relu_pre!r}; it must be a bool")
        if self.attention_scale is not None:
            _check_numbers("attention_scale", (self.attention_scale,), 1)
        _check_clip("attention_clip", self.attention_clip)

    def _check_dyht(self):
        _check_clip("dyht_clip", self.dyht_clip)
        if not isinstance(self.scalar_dyht, tuple):
            raise TypeError(
                f"scalar_dyht is {self.scalar_dyht!r}; it must be a list or tuple of names"
            )
        names = (*LAYER_DYHT, FINAL_DYHT)
        allowed = {f"{name}.{part}" for name in names for part in ("alpha", "gamma")}
        if unknown := set(self.scalar_dyht) - allowed:
            raise ValueError(
                f"scalar_dyht has {', '.join(map(repr, sorted(unknown)))}; "
                f"allowed are {', '.join(sorted(allowed))}"
            )


def _check_numbers(name: str, values: tuple, count: int):
    if not isinstance(values, tuple):
        raise TypeError(f"{name} is {values!r}; it must be a list or tuple of numbers")
    if len(values) != count:
        raise ValueError(f"{name} is {values}; it must have {count} entries")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name} has {value!r}; its entries must be numbers")


def _check_clip(name: str, clip: tuple):
    _check_numbers(name, clip, 2)
    if not clip[0] <= clip[1]:
        raise ValueError(f"{name} is {clip}; its minimum must not be above its maximum")
