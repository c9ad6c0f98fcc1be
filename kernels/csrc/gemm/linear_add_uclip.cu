// The attention's output projection with all that stands before the MLP in its epilogue:
// DyHT_post, the residual, and DyHT_mlp as a second output.
#include "asynct/dyht.cuh"
#include "asynct/launch.h"
#include "gemm.cuh"

namespace asynct {
namespace {

struct Clip {
  float low;
  float high;
};

template <class Floats>
struct DyHTFunction {
  using Arguments = Clip;
  __device__ Floats operator()(const Floats& x, const Floats& alpha, const Floats& gamma,
                               const Clip& clip) const {
    Floats y;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Floats::kElements; ++i) {
      y[i] = DyHTOf(x[i], alpha[i], gamma[i], clip.low, clip.high);
    }
    return y;
  }
};

template <class Floats>
struct AddDyHTFunction {
  using Arguments = Clip;
  __device__ Floats operator()(const Floats& residual, const Floats& x, const Floats& alpha,
                               const Floats& gamma, const Clip& clip) const {
    Floats y = DyHTFunction<Floats>{}(x, alpha, gamma, clip);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Floats::kElements; ++i) y[i] = __fadd_rn(residual[i], y[i]);
    return y;
  }
};

// Sm90Compute asks a function of one float, which it never calls, for its arguments' type.
template <>
struct DyHTFunction<float> {
  using Arguments = Clip;
};
template <>
struct AddDyHTFunction<float> {
  using Arguments = Clip;
};

// One value a column of the product, or one for all, staged in shared memory.
using PerColumn = cutlass::epilogue::fusion::Sm90RowBroadcast<
    0, gemm::TileShape, float, float, cute::Stride<cute::_0, bool, int64_t>>;

PerColumn::Arguments Column(const Parameter& parameter) {
  return {static_cast<const float*>(parameter.data), 0.0f, {{}, parameter.stride != 0, 0}};
}

// A tree's node that passes its input on and stores it, [m, n] as the output.
template <class Element, class Input>
struct Stored {
  using Epilogue = gemm::EpilogueOf<Element, Element>;
  using Auxiliary =
      cutlass::epilogue::collective::detail::AuxStoreDescriptor<Epilogue, gemm::RowMajor, Element>;
  using Type = cutlass::epilogue::fusion::Sm90EVT<
      cutlass::epilogue::fusion::Sm90AuxStore<
          Auxiliary::Stages, typename Epilogue::EpilogueTile, Element, gemm::kRound,
          typename Auxiliary::Stride, typename Auxiliary::SmemLayoutAtom,
          typename Auxiliary::CopyOpR2S>,
      Input>;
};

template <class Element>
using NewResidual = gemm::Node<AddDyHTFunction, Element,
                               cutlass::epilogue::fusion::Sm90SrcFetch<Element>, gemm::Accumulator,
                               PerColumn, PerColumn>;

template <class Element>
using Tree = gemm::Node<DyHTFunction, Element, typename Stored<Element, NewResidual<Element>>::Type,
                        PerColumn, PerColumn>;

}  // namespace

void LinearAddUclip(const LinearAddUclipParams& params, cudaStream_t stream) {
  gemm::DispatchElement(params.dtype, [&](auto element) {
    using Element = decltype(element);
    const DyHTParams& post = params.post;
    const DyHTParams& mlp = params.mlp;
    gemm::Gemm<Element, gemm::RowsInOrder, Element, Element, Tree<Element>>::Launch(
        "linear_add_uclip", params.rows, params.channels, params.depth, params.x, params.weight,
        params.residual, params.y,
        {{{{}, {}, Column(post.alpha), Column(post.gamma), {post.clip_min, post.clip_max}},
          {static_cast<Element*>(params.new_residual), gemm::RowStride{params.channels, {}, 0}}},
         Column(mlp.alpha),
         Column(mlp.gamma),
         {mlp.clip_min, mlp.clip_max}},
        stream);
  });
}

}  // namespace asynct
