"""What kind of work a GPU kernel does, told from its name."""

import re

# The first pattern that is found decides. Fused Inductor kernels carry their operations' names.
_PATTERNS = [
    # Launches that only prepare an attention kernel's work count as attention.
    ("attention decode", r"asynct::decode::|DecodeSchedule|hp1_decode"),
    ("attention prefill", r"asynct::prefill_|hp1_prefill|GatherPages"),
    # Of kernels that serve both.
    ("attention", r"flash::|FlashAttn|flash_fwd|prepare_varlen|attend_tiles|sum_splits"
                  r"|unified_attention|reduce_segments|paged_attention"),
    ("cache write", r"reshape_and_cache|concat_and_cache|ReshapeAndCache"),
    ("gemm", r"nvjet|gemm|gemv|cutlass|xmma|cublas|splitK|Kernel2|scaled_mm"),
    ("sampler", r"sampl|gumbel|argmax|ArgMax|top_?k|softmax|penalt|temperature|min_p|logit"
                r"|logprob|_bias_kernel"),
    ("step inputs", r"_prepare_|slot_mapping|block_tables|_combine_sampled|_post_update|idx_mapping"
                    r"|_apply_write|num_sampled|FillFunctor|arange|cumsum|DeviceScan"),
    ("activation", r"silu|gelu|relu|ReluAndMul|act_and_mul"),
    ("rope", r"rotary|rope|(?=.*cat)(?=.*(sin|cos|index_select|split|chunk|slice|neg))triton"),
    # QkNormRopeCache does the norms, RoPE and the cache write.
    ("norm", r"rms|layer_norm|layernorm|rsqrt|uclip|Uclip|clamp|QkNormRope"),
    ("quantisation", r"quant|fp8|absmax|amax"),
    ("embedding", r"embedding|indexSelect|gather"),
    ("copy", r"Memcpy|Memset|copy|CatArray|direct_copy|elementwise"),
]
_COMPILED = [(kind, re.compile(pattern)) for kind, pattern in _PATTERNS]

OTHER = "other"
KINDS = tuple(kind for kind, _ in _PATTERNS) + (OTHER,)


def kind_of(name: str) -> str:
    """One of KINDS, for the demangled name of a kernel, copy or fill as the profiler gives it."""
    return next((kind for kind, pattern in _COMPILED if pattern.search(name)), OTHER)
