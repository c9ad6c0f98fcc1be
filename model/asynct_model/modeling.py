"""AsyncT for transformers: the eager model, with a KV cache, gradients and `generate`."""

import os

import torch
from asynct_kernels import GateParams, dyht
from asynct_kernels.reference import attention
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from asynct_model import checkpoint
from asynct_model.configuration import AsyncTConfig

# Where training starts. Scores are scaled by 1/D, so the gate has to be sharp: alpha in units of D.
_GATE_ALPHA_PER_DIM = 0.5
_GATE_SIGMA = 0.5
_DYHT_ALPHA = 2.0


class AsyncTDyHT(nn.Module):
    """DyHT over the last dimension: gamma * clamp(alpha * x), in float32, rounded once."""

    def __init__(self, config: AsyncTConfig, name: str):
        super().__init__()
        alpha, gamma = config.dyht_sizes(name)
        self.alpha = nn.Parameter(torch.empty(alpha))
        self.gamma = nn.Parameter(torch.empty(gamma))
        self.clip = config.dyht_clip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return dyht(x, self.alpha, self.gamma, *self.clip)


class AsyncTAttention(nn.Module):
    """AsyncI attention with DyHT and RoPE on queries and keys."""

    def __init__(self, config: AsyncTConfig, layer_idx: int):
        super().__init__()
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.gate_settings = config.gate_settings
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        hidden = config.hidden_size
        self.q_proj = nn.Linear(hidden, heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(heads * self.head_dim, hidden, bias=False)
        self.q_norm = AsyncTDyHT(config, "self_attn.q_norm")
        self.k_norm = AsyncTDyHT(config, "self_attn.k_norm")
        self.sigma = nn.Parameter(torch.empty(heads))
        self.alpha = nn.Parameter(torch.empty(heads))
        self.gamma = nn.Parameter(torch.empty(heads))

    def project(
        self, hidden_states: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query [B, T, H, D], key and value [B, T, H_kv, D] of hidden_states [B, T, hidden]."""
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query = rotate(self.q_norm(self.q_proj(hidden_states).view(shape)), rotary)
        key = rotate(self.k_norm(self.k_proj(hidden_states).view(shape)), rotary)
        return query, key, self.v_proj(hidden_states).view(shape)

    def gate(self) -> GateParams:
        """The gate with this layer's per-head parameters."""
        return GateParams(self.sigma, self.alpha, self.gamma, **self.gate_settings)

    def forward(
        self,
        hidden_states: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        visible: torch.Tensor | None,
        past_key_values: Cache | None,
    ) -> torch.Tensor:
        query, key, value = self.project(hidden_states, rotary)
        if past_key_values is not None:  # it keeps [B, heads, T, D]
            key, value = past_key_values.update(
                key.transpose(1, 2), value.transpose(1, 2), self.layer_idx
            )
            key, value = key.transpose(1, 2), value.transpose(1, 2)
        dtype = _at_least_float32(query.dtype)
        with torch.autocast(query.device.type, enabled=False):
            output = attention(query, key, value, self.gate(), visible=visible, dtype=dtype)
        return self.o_proj(output.to(value.dtype).flatten(-2))


class AsyncTMLP(nn.Module):
    """ReGLU: W_down(relu(W_gate x) * (W_up x))."""

    def __init__(self, config: AsyncTConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        """relu(W_gate x) * (W_up x), [..., intermediate]."""
        return self.gate_proj(x).relu() * self.up_proj(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.inner(x))


class AsyncTDecoderLayer(GradientCheckpointingLayer):
    """One layer; the attention's output passes a DyHT before it joins the residual stream."""

    def __init__(self, config: AsyncTConfig, layer_idx: int):
        super().__init__()
        self.input_layernorm = AsyncTDyHT(config, "input_layernorm")
        self.self_attn = AsyncTAttention(config, layer_idx)
        self.post_attn_layernorm = AsyncTDyHT(config, "post_attn_layernorm")
        self.pre_mlp_layernorm = AsyncTDyHT(config, "pre_mlp_layernorm")
        self.mlp = AsyncTMLP(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        visible: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
    ) -> torch.Tensor:
        x = self.self_attn(self.input_layernorm(hidden_states), rotary, visible, past_key_values)
        hidden_states = hidden_states + self.post_attn_layernorm(x)
        return hidden_states + self.mlp(self.pre_mlp_layernorm(hidden_states))


class AsyncTPreTrainedModel(PreTrainedModel):
    config_class = AsyncTConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["AsyncTDecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _can_record_outputs = {"hidden_states": AsyncTDecoderLayer}
    # A few kilobytes whose rounding to bfloat16 would show in every score.
    _keep_in_fp32_modules_strict = ["norm", "layernorm", "sigma", "alpha", "gamma"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        if isinstance(module, AsyncTAttention):
            init.constant_(module.sigma, _GATE_SIGMA)
            init.constant_(module.alpha, _GATE_ALPHA_PER_DIM * module.head_dim)
            init.ones_(module.gamma)
        elif isinstance(module, AsyncTDyHT):
            init.constant_(module.alpha, _DYHT_ALPHA)
            init.ones_(module.gamma)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """As in transformers; a directory's tensors are checked first.

        Raises:
            ValueError: a tensor is missing, unknown or misshapen, or a file is cut short.
        """
        path = pretrained_model_name_or_path
        if path is not None and os.path.isdir(path):
            config = kwargs.get("config")
            if not isinstance(config, AsyncTConfig):
                config = AsyncTConfig.from_pretrained(
                    config or path, subfolder=kwargs.get("subfolder") or ""
                )
            directory = os.path.join(path, kwargs.get("subfolder") or "")
            checkpoint.check_directory(directory, config)
        return super().from_pretrained(path, *args, **kwargs)


class AsyncTModel(AsyncTPreTrainedModel):
    """Embedding, layers and the final DyHT."""

    def __init__(self, config: AsyncTConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            AsyncTDecoderLayer(config, index) for index in range(config.num_hidden_layers)
        )
        self.norm = AsyncTDyHT(config, "norm")
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPast:
        """Runs T tokens after the P that the cache holds.

        Args:
            input_ids: [B, T]; or inputs_embeds [B, T, hidden].
            attention_mask: [B, P + T], nonzero where a token counts, padding on either side.
            position_ids: [B, T]; by default counted over the tokens that the mask keeps.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("exactly one of input_ids and inputs_embeds must be given")
        hidden_states = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        batch, length = hidden_states.shape[:2]

        visible = None
        positions = past + torch.arange(length, device=hidden_states.device)[None]
        if attention_mask is not None:
            if attention_mask.shape != (batch, past + length):
                raise ValueError(
                    f"attention_mask has shape {list(attention_mask.shape)}; "
                    f"it must be [{batch}, {past} cached + {length}]"
                )
            kept = attention_mask.to(device=hidden_states.device, dtype=torch.bool)
            causal = torch.arange(past + length, device=kept.device) <= positions[0, :, None]
            visible = causal & kept[:, None, :]
            positions = (kept.long().cumsum(-1) - 1).clamp(min=0)[:, past:]
        if position_ids is not None:
            positions = position_ids

        rotary = rotary_factors(positions, self.config)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states, rotary, visible=visible, past_key_values=past_key_values
            )
        return BaseModelOutputWithPast(
            last_hidden_state=self.norm(hidden_states),
            past_key_values=past_key_values if use_cache else None,
        )


class AsyncTForCausalLM(AsyncTPreTrainedModel, GenerationMixin):
    """AsyncT with its language-model head."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: AsyncTConfig):
        super().__init__(config)
        self.model = AsyncTModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs,
    ) -> CausalLMOutputWithPast:
        """As `AsyncTModel.forward`, then logits.

        Args:
            labels: [B, T] token ids, -100 where there is no loss; shifted here, as transformers do.
            logits_to_keep: only the last so many positions' logits, 0 for all; or their indices.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, keep])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
        )


def rotary_factors(
    positions: torch.Tensor, config: AsyncTConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 (cos, sin), each [B, T, 1, D/2], of RoPE at `positions` [B, T]."""
    exponent = torch.arange(0, config.head_dim, 2, device=positions.device) / config.head_dim
    frequency = config.rope_parameters["rope_theta"] ** -exponent.float()
    angle = positions[..., None, None].float() * frequency
    return angle.cos(), angle.sin()


def rotate(x: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """RoPE in its half-split form over all of D; x [B, T, heads, D], in float32, rounded once."""
    cos, sin = rotary
    first, second = x.to(_at_least_float32(x.dtype)).chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.to(x.dtype)


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
