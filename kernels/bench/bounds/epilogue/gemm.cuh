// A Hopper GEMM of CUTLASS with an epilogue of our own: D[m][n] = epilogue(sum_k X[m][k] W[n][k]).
// bf16 operands, both contiguous along k, as a projection has them; float32 accumulators.
#pragma once

#include <cuda_runtime.h>

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"

namespace asynct::epilogue_bench {

using Element = cutlass::bfloat16_t;
using RowMajor = cutlass::layout::RowMajor;
inline constexpr auto kRound = cutlass::FloatRoundStyle::round_to_nearest;

template <int kM, int kN, int kK, int kClusterM, class MainloopSchedule, class EpilogueSchedule>
struct Tile {
  using Shape = cute::Shape<cute::Int<kM>, cute::Int<kN>, cute::Int<kK>>;
  using Cluster = cute::Shape<cute::Int<kClusterM>, cute::_1, cute::_1>;
  using Mainloop = MainloopSchedule;
  using Epilogue = EpilogueSchedule;
};

// Few tokens: the weights are streamed once, by as many blocks as there are multiprocessors.
template <int kN>
using DecodeTile = Tile<64, kN, 128, 1, cutlass::gemm::KernelTmaWarpSpecialized,
                        cutlass::epilogue::TmaWarpSpecialized>;
// Many tokens: two warpgroups share a tile, or take turns, one's epilogue under the other's
// products.
using CooperativeTile = Tile<128, 256, 64, 2, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                             cutlass::epilogue::TmaWarpSpecializedCooperative>;
using PingpongTile = Tile<128, 128, 64, 2, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                          cutlass::epilogue::TmaWarpSpecialized>;

// Calls launch(tile) with the tile of that index: for few tokens, cooperative, pingpong.
template <int kDecodeN, class Launch>
int Choose(int tile, Launch launch) {
  switch (tile) {
    case 0: return launch(DecodeTile<kDecodeN>{});
    case 1: return launch(CooperativeTile{});
    case 2: return launch(PingpongTile{});
  }
  return static_cast<int>(cutlass::Status::kInvalid);
}

// What the visitors of a tree have to know of the tile and of the tensors that it reads and writes.
template <class Tile, class Source, class Output>
using EpilogueOf = cutlass::epilogue::collective::detail::EpilogueDescriptor<
    typename Tile::Shape, cutlass::epilogue::collective::EpilogueTileAuto, Source, Output,
    typename Tile::Epilogue>;

// One value a column (an output channel), staged in shared memory.
template <class Tile>
using PerColumn = cutlass::epilogue::fusion::Sm90RowBroadcast<
    0, typename Tile::Shape, Element, float, cute::Stride<cute::_0, cute::_1, int64_t>>;

// The vector that a PerColumn reads; null for ones, which it does not load.
template <class Tile>
typename PerColumn<Tile>::Arguments Column(const void* vector) {
  return {static_cast<const Element*>(vector), Element(1)};
}

template <template <class> class Function, class Output, class... Inputs>
using Node = cutlass::epilogue::fusion::Sm90EVT<
    cutlass::epilogue::fusion::Sm90Compute<Function, Output, float, kRound>, Inputs...>;

using Accumulator = cutlass::epilogue::fusion::Sm90AccFetch;

// Source: the tensor [m, n] that Sm90SrcFetch reads, void for none. Tree: the epilogue.
template <class Tile, class Source, class Output, class Tree>
struct Gemm {
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, typename Tile::Shape,
      typename Tile::Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float, Source,
      RowMajor, 8, Output, RowMajor, 16 / sizeof(Output), typename Tile::Epilogue,
      Tree>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, RowMajor, 8, Element,
      cutlass::layout::ColumnMajor, 8, float, typename Tile::Shape, typename Tile::Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      typename Tile::Mainloop>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop,
                                                      Epilogue>;
  using Adapter = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  // Returns a cutlass::Status: 0 for success.
  static int Launch(int m, int n, int k, const void* x, const void* weight, const void* source,
                    void* out, const typename Tree::Arguments& tree, cudaStream_t stream) {
    const auto rows_of = [](int columns) {
      return cute::make_stride(int64_t{columns}, cute::_1{}, int64_t{0});
    };
    typename Kernel::Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGemm,
        {m, n, k, 1},
        {static_cast<const Element*>(x), rows_of(k), static_cast<const Element*>(weight),
         rows_of(k)},
        {tree, static_cast<const Source*>(source), rows_of(n), static_cast<Output*>(out),
         rows_of(n)}};
    cudaGetDevice(&arguments.hw_info.device_id);
    cudaDeviceGetAttribute(&arguments.hw_info.sm_count, cudaDevAttrMultiProcessorCount,
                           arguments.hw_info.device_id);
    Adapter adapter;
    if (Adapter::get_workspace_size(arguments) != 0) {
      return static_cast<int>(cutlass::Status::kErrorWorkspaceNull);
    }
    const auto status = adapter.initialize(arguments, nullptr, stream);
    if (status != cutlass::Status::kSuccess) return static_cast<int>(status);
    return static_cast<int>(adapter.run(stream));
  }
};

}  // namespace asynct::epilogue_bench
