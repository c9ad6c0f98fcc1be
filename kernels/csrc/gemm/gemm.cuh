// A Hopper GEMM of CUTLASS with an epilogue of ours: D[m][n] = epilogue(sum_k X[m][k] W[n][k]).
// Operands are bf16 or fp16, both contiguous along k as a projection has them; accumulators float32.
//
// One tile, 128 x 128 pingpong: of two warpgroups one runs its epilogue under the other's products.
#pragma once

// A product may start while the kernel ahead ends, which is another product where there are two in
// a row: its copies wait for what that one writes.
#define CUTLASS_ENABLE_GDC_FOR_SM90

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "asynct/params.h"
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"

namespace asynct::gemm {

using TileShape = cute::Shape<cute::_128, cute::_128, cute::_64>;
using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
using MainloopSchedule = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized;
using RowMajor = cutlass::layout::RowMajor;
inline constexpr auto kRound = cutlass::FloatRoundStyle::round_to_nearest;

// Strides of [rows, columns, 1] whose columns are adjacent.
using RowStride = cute::Stride<int64_t, cute::_1, int64_t>;

// How the columns of the product number the rows of W [n, k]: as they are, or
struct RowsInOrder {
  using Stride = RowStride;
  static Stride StrideOf(int /*n*/, int k) { return {k, {}, 0}; }
  template <class Mainloop>
  using Collective = Mainloop;
};

// in pairs: columns 2i and 2i + 1 are rows i and n / 2 + i. A tile's box of the copy engine spans
// both halves of W, so that shared memory has the pairs side by side and W itself stays as it is.
struct RowsInPairs {
  using Stride = cute::Stride<cute::Stride<int64_t, int64_t>, cute::_1, int64_t>;
  static Stride StrideOf(int n, int k) { return {{int64_t{n} / 2 * k, k}, {}, 0}; }

  // The mainloop, told of n as (2, n / 2); kernel and epilogue know it as one number.
  template <class Mainloop>
  struct Collective : Mainloop {
    template <class Problem>
    CUTLASS_HOST_DEVICE static auto Paired(const Problem& problem) {
      const auto [m, n, k, l] = problem;
      return cute::make_shape(m, cute::make_shape(cute::_2{}, n / 2), k, l);
    }
    template <class Problem>
    static auto to_underlying_arguments(const Problem& problem,
                                        const typename Mainloop::Arguments& arguments,
                                        void* workspace) {
      return Mainloop::to_underlying_arguments(Paired(problem), arguments, workspace);
    }
    template <class Problem>
    static bool can_implement(const Problem& problem,
                              const typename Mainloop::Arguments& arguments) {
      return Mainloop::can_implement(Paired(problem), arguments);
    }
    template <class Problem>
    CUTLASS_DEVICE auto load_init(const Problem& problem,
                                  const typename Mainloop::Params& params) const {
      return Mainloop::load_init(Paired(problem), params);
    }
  };
};

}  // namespace asynct::gemm

namespace cute {

// CollectiveMma derives the type of its copies from tensors whose extents are repeat_like(stride,
// int): there the 2 of (2, n / 2) must be a constant as well. Found by argument-dependent lookup.
template <class T>
CUTE_HOST_DEVICE constexpr auto repeat_like(const asynct::gemm::RowsInPairs::Stride&, const T& x) {
  return make_shape(make_shape(_2{}, x), x, x);
}

}  // namespace cute

namespace asynct::gemm {

// What the visitors of a tree have to know of the tensors that it reads and writes.
template <class Source, class Output>
using EpilogueOf = cutlass::epilogue::collective::detail::EpilogueDescriptor<
    TileShape, cutlass::epilogue::collective::EpilogueTileAuto, Source, Output, EpilogueSchedule>;

template <template <class> class Function, class Output, class... Inputs>
using Node = cutlass::epilogue::fusion::Sm90EVT<
    cutlass::epilogue::fusion::Sm90Compute<Function, Output, float, kRound>, Inputs...>;

using Accumulator = cutlass::epilogue::fusion::Sm90AccFetch;

// W's rows as `Rows` has them. Source: the tensor [m, n] that Sm90SrcFetch reads, void for none.
// Tree: the epilogue.
template <class Element, class Rows, class Source, class Output, class Tree>
struct Gemm {
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Source, RowMajor, 8, Output,
      RowMajor, 16 / sizeof(Output), EpilogueSchedule, Tree>::CollectiveOp;
  using Mainloop = typename Rows::template Collective<
      typename cutlass::gemm::collective::CollectiveBuilder<
          cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, RowStride, 8, Element,
          typename Rows::Stride, 8, float, TileShape, Cluster,
          cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
              sizeof(typename Epilogue::SharedStorage))>,
          MainloopSchedule>::CollectiveOp>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop,
                                                      Epilogue>;
  using Adapter = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  // Enqueues it for x [m, k], weight [n, k], source and out [m, n], all contiguous.
  static void Launch(const char* name, int m, int n, int k, const void* x, const void* weight,
                     const void* source, void* out, const typename Tree::Arguments& tree,
                     cudaStream_t stream) {
    if (m == 0) return;
    typename Kernel::Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGemm,
        {m, n, k, 1},
        {static_cast<const Element*>(x), RowStride{k, {}, 0}, static_cast<const Element*>(weight),
         Rows::StrideOf(n, k)},
        {tree, static_cast<const Source*>(source), RowStride{n, {}, 0}, static_cast<Output*>(out),
         RowStride{n, {}, 0}}};
    cudaGetDevice(&arguments.hw_info.device_id);
    cudaDeviceGetAttribute(&arguments.hw_info.sm_count, cudaDevAttrMultiProcessorCount,
                           arguments.hw_info.device_id);
    // A persistent grid over whole tiles needs no workspace.
    Adapter adapter;
    Check(name, Adapter::can_implement(arguments));
    Check(name, adapter.initialize(arguments, nullptr, stream));
    Check(name, adapter.run(stream, nullptr, /*launch_with_pdl=*/true));
  }

 private:
  static void Check(const char* name, cutlass::Status status) {
    if (status == cutlass::Status::kSuccess) return;
    throw std::runtime_error(std::string(name) + ": " + cutlassGetStatusString(status) + ", " +
                             cudaGetErrorString(cudaGetLastError()));
  }
};

// Calls function(element) with a value of the CUTLASS type of `dtype`, which is bf16 or fp16.
template <class Function>
void DispatchElement(DataType dtype, Function function) {
  if (dtype == DataType::kBFloat16) {
    function(cutlass::bfloat16_t{});
  } else {
    function(cutlass::half_t{});
  }
}

}  // namespace asynct::gemm
