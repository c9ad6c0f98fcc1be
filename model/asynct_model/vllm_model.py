"""AsyncT for vLLM: tensor- and pipeline-parallel, compiled as one graph, ready for LoRA.

vLLM keeps what it knows of the model under a hash of this file alone, so the class's interfaces
(its bases and class attributes) must stay in this file.
"""

from collections.abc import Iterable
from itertools import islice

import torch
from torch import nn
from vllm.compilation.decorators import support_torch_compile
from vllm.config import VllmConfig
from vllm.distributed import get_pp_group
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.models.interfaces import (
    EagleModelMixin,
    SupportsEagle,
    SupportsEagle3,
    SupportsLoRA,
    SupportsPP,
)
from vllm.model_executor.models.utils import (
    AutoWeightsLoader,
    PPMissingLayer,
    WeightsMapper,
    make_empty_intermediate_tensors_factory,
    make_layers,
    maybe_prefix,
)
from vllm.sequence import IntermediateTensors

from asynct_model.vllm_layers import AsyncTDecoderLayer, DyHT
from asynct_model.vllm_weights import checked


@support_torch_compile
class AsyncTModel(nn.Module, EagleModelMixin):
    """Embedding, this pipeline stage's layers and the final DyHT."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        cache_config, quant_config = vllm_config.cache_config, vllm_config.quant_config
        stage = get_pp_group()
        if stage.is_first_rank or (config.tie_word_embeddings and stage.is_last_rank):
            self.embed_tokens = VocabParallelEmbedding(
                config.vocab_size,
                config.hidden_size,
                quant_config=quant_config,
                prefix=f"{prefix}.embed_tokens",
            )
        else:
            self.embed_tokens = PPMissingLayer()
        self.start_layer, self.end_layer, self.layers = make_layers(
            config.num_hidden_layers,
            lambda prefix: AsyncTDecoderLayer(config, cache_config, quant_config, prefix),
            prefix=f"{prefix}.layers",
        )
        if self.start_layer == self.end_layer:
            raise ValueError(
                f"pipeline stage {stage.rank_in_group} of {stage.world_size} has none of the "
                f"num_hidden_layers={config.num_hidden_layers}: each must have one at least"
            )
        if stage.is_last_rank:
            self.norm = DyHT(config, "norm")
        else:
            self.norm = PPMissingLayer()
        self.make_empty_intermediate_tensors = make_empty_intermediate_tensors_factory(
            ["hidden_states"], config.hidden_size
        )

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.embed_tokens(input_ids)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, list[torch.Tensor]] | IntermediateTensors:
        """input_ids, positions [T] -> hidden states [T, hidden], or the next stage's input.

        Where an EAGLE-3 head asks for the residual stream after inner layers, that comes along.
        """
        stage = get_pp_group()
        if not stage.is_first_rank:
            hidden_states = intermediate_tensors["hidden_states"]
        elif inputs_embeds is not None:
            hidden_states = inputs_embeds
        else:
            hidden_states = self.embed_input_ids(input_ids)
        residual = None
        inner = self._maybe_add_hidden_state([], self.start_layer, hidden_states, residual)
        for index, layer in enumerate(
            islice(self.layers, self.start_layer, self.end_layer), self.start_layer + 1
        ):
            hidden_states, residual = layer(positions, hidden_states, residual)
            self._maybe_add_hidden_state(inner, index, hidden_states, residual)
        if not stage.is_last_rank:
            # Added up here: one tensor crosses to the next stage, not two.
            return IntermediateTensors({"hidden_states": hidden_states + residual})
        hidden_states, _ = self.norm(hidden_states, residual)
        return (hidden_states, inner) if inner else hidden_states


class AsyncTForCausalLM(nn.Module, SupportsLoRA, SupportsPP, SupportsEagle, SupportsEagle3):
    """AsyncT with its language-model head, from the Hugging Face model's own safetensors."""

    hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_stacked={
            ".q_proj": (".qkv_proj", "q"),
            ".k_proj": (".qkv_proj", "k"),
            ".v_proj": (".qkv_proj", "v"),
            ".gate_proj": (".gate_up_proj", 0),
            ".up_proj": (".gate_up_proj", 1),
        }
    )
    packed_modules_mapping = {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }
    embedding_modules = {"embed_tokens": "input_embeddings", "lm_head": "output_embeddings"}

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        self.config = config
        self.quant_config = vllm_config.quant_config
        self.source = vllm_config.model_config.model
        self.model = AsyncTModel(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "model"))
        if not get_pp_group().is_last_rank:
            self.lm_head = PPMissingLayer()
        elif config.tie_word_embeddings:
            self.lm_head = self.model.embed_tokens
        else:
            self.lm_head = ParallelLMHead(
                config.vocab_size,
                config.hidden_size,
                quant_config=self.quant_config,
                prefix=maybe_prefix(prefix, "lm_head"),
            )
        self.logits_processor = LogitsProcessor(config.vocab_size)
        self.make_empty_intermediate_tensors = self.model.make_empty_intermediate_tensors

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, list[torch.Tensor]] | IntermediateTensors:
        return self.model(input_ids, positions, intermediate_tensors, inputs_embeds)

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        return self.logits_processor(self.lm_head, hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Loads a whole checkpoint; returns the names of the parameters that it filled.

        Raises:
            ValueError: a tensor is missing, unknown or of a wrong shape, or a file is cut short or
                damaged (all are named).
        """
        weights = checked(
            weights,
            self.config,
            source=self.source,
            quantised=self.quant_config is not None,
        )
        return AutoWeightsLoader(self).load_weights(weights, mapper=self.hf_to_vllm_mapper)
