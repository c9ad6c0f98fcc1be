// A consumer warpgroup: 64 query rows of one head against all their key tiles.
#pragma once

#include "asynct/ptx/matrix.cuh"
#include "asynct/ptx/warpgroup.cuh"
#include "asynct/ptx/wgmma.cuh"
#include "wgmma_shared.cuh"

namespace asynct::prefill_wgmma {

// Keys are multiplied two tiles ahead of the gate. While the scores of a tile turn into p, the
// products with the values of the tile before and with the keys of the tile after are under way,
// and this goes on from one work to the next.
template <class Traits>
class Consumer {
  using T = typename Traits::Element;
  using Position = RingPosition<Traits::kStages>;
  static constexpr int kScores = Traits::kTileKeys / 2;  // of a thread, in two rows
  static constexpr uint32_t kTileLineBytes = Traits::kTileKeys * kLine * sizeof(T);
  static constexpr int kPartDim = Traits::kHeadDim < 128 ? Traits::kHeadDim : 128;
  static constexpr int kParts = Traits::kHeadDim / kPartDim;  // products that make an output row

  using Scores = float[kScores];
  using Weights = uint32_t[kScores / 8][4];  // p as A fragments
  using Output = float[kParts][kPartDim / 2];

  // A tile, by its work. `tiles` are the work's; 0 if there is no such tile.
  struct Place {
    uint32_t n;
    int tile;
    int tiles;

    __device__ __forceinline__ bool Exists() const { return tiles > 0; }
    __device__ __forceinline__ bool IsLast() const { return tile + 1 == tiles; }
  };

  // Where the gate is.
  struct Cursor {
    Position at;  // of its tile in the rings
    Place tile;
    Place next;
    int row;  // position of the thread's first row
  };

 public:
  __device__ __forceinline__ Consumer(const Params& params, Shared<Traits>& shared, int group)
      : params_(params), shared_(shared), group_(group) {}

  __device__ __forceinline__ void Run() {
    Place first = {0, 0, shared_.WaitWork(0).tiles};
    if (!first.Exists()) return;
    Output o;
    Scores even;
    Scores odd;
    Weights p;
    auto gate = StartGate(0);
    Clear(o);
    StartKeys(even, first, {0});
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(even);
    ReleaseKeys(first, {0});
    Cursor cursor = {{0}, first, After(first), FirstPosition(0)};
    StartKeys(odd, cursor.next, {1});
    while (Step(even, odd, p, o, gate, cursor) && Step(odd, even, p, o, gate, cursor)) {
    }
    ptx::wgmma_wait<0>();
    Pin(o);
    StoreOut(o, shared_.WorkAt(cursor.tile.n));
  }

 private:
  // Gates the scores `s` of the cursor's tile and starts its product with the values; `s` then
  // becomes the scores of the tile after the next. Moves on to the next, whose scores are `next`;
  // false if there is none.
  __device__ __forceinline__ bool Step(Scores& s, Scores& next, Weights& p, Output& o,
                                       typename Traits::Gate& gate, Cursor& cursor) {
    const Place tile = cursor.tile;
    gate.Apply(s);
    Mask(s, cursor);

    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(next);
    Pin(o);
    if (cursor.at.count > 0) shared_.value_ring.Release({cursor.at.count - 1});
    ReleaseKeys(cursor.next, {cursor.at.count + 1});
    PackScores<T>(s, p);
    const Place ahead = After(cursor.next);
    StartKeys(s, ahead, {cursor.at.count + 2});
    if (tile.tile == 0 && tile.n > 0) {
      StoreOut(o, shared_.WorkAt(tile.n - 1));
      Clear(o);
      shared_.work_ring.Release({tile.n - 1});
    }
    shared_.value_ring.WaitFull(cursor.at);
    MultiplyValues(o, p, cursor.at);
    ptx::wgmma_commit();

    if (!cursor.next.Exists()) return false;
    if (tile.IsLast()) {
      gate = StartGate(cursor.next.n);
      cursor.row = FirstPosition(cursor.next.n);
    }
    cursor.tile = cursor.next;
    cursor.next = ahead;
    ++cursor.at.count;
    return true;
  }

  __device__ __forceinline__ Place After(const Place& place) {
    if (!place.Exists()) return place;
    if (!place.IsLast()) return {place.n, place.tile + 1, place.tiles};
    return {place.n + 1, 0, shared_.WaitWork(place.n + 1).tiles};
  }
  // Starts the scores of a tile. If there is none, of what a slot happens to hold, and nobody looks
  // at them: the compiler keeps products in flight only where all threads are sure to start them.
  __device__ __forceinline__ void StartKeys(Scores& s, const Place& place, Position at) {
    if (place.Exists()) {
      if (place.tile == 0) shared_.query_ring.WaitFull({place.n});
      shared_.key_ring.WaitFull(at);
    }
    MultiplyKeys(s, place.n, at);
    ptx::wgmma_commit();
  }
  __device__ __forceinline__ void ReleaseKeys(const Place& place, Position at) {
    if (!place.Exists()) return;
    shared_.key_ring.Release(at);
    if (place.IsLast()) shared_.query_ring.Release({place.n});
  }
  // The position of the thread's first row in work n.
  __device__ __forceinline__ int FirstPosition(uint32_t n) {
    return shared_.WorkAt(n).block.position + FirstRow() +
           threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4;
  }
  __device__ __forceinline__ auto StartGate(uint32_t n) {
    const Work& work = shared_.WorkAt(n);
    return typename Traits::Gate(params_.gate, Head(work), ScaleOf(params_.key, work.kv_head));
  }
  __device__ __forceinline__ int Head(const Work& work) const {
    return work.head + group_ % params_.work_heads;
  }
  // The warpgroup's first row within the row block.
  __device__ __forceinline__ int FirstRow() const {
    return group_ / params_.work_heads * kWarpgroupRows;
  }
  static __device__ __forceinline__ float ScaleOf(const KeyValueSource& source, int kv_head) {
    return source.scale == nullptr ? 1.0f : source.scale[kv_head * source.scale_stride];
  }

  __device__ __forceinline__ void Pin(Output& o) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) ptx::wgmma_pin(o[part]);
  }
  __device__ __forceinline__ void Clear(Output& o) {
#pragma unroll
    for (int i = 0; i < Traits::kHeadDim / 2; ++i) o[i / (kPartDim / 2)][i % (kPartDim / 2)] = 0.0f;
  }

  // S = Q K^T, both K-major: a step is 16 elements of the head, 32 bytes within a line.
  __device__ __forceinline__ void MultiplyKeys(Scores& s, uint32_t n, Position at) {
    constexpr uint32_t kQueryLineBytes = kWarpgroupRows * kLine * sizeof(T);
    auto* rows = shared_.query[RingPosition<Traits::kQuerySlots>{n}.Slot()][group_];
    // Where registers are short, descriptors are made anew for each tile.
    if constexpr (Traits::kHeadDim > 128) asm volatile("" : "+l"(rows));
    const uint64_t query = ptx::wgmma_descriptor(rows, 0, 1024);
    const uint64_t key = ptx::wgmma_descriptor(shared_.key[at.Slot()], 0, 1024);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Traits::kHeadDim / 16; ++step) {
      ptx::wgmma<0, T>(s, ptx::wgmma_advance(query, step / 4 * kQueryLineBytes + step % 4 * 32),
                       ptx::wgmma_advance(key, step / 4 * kTileLineBytes + step % 4 * 32),
                       step > 0);
    }
  }

  // O += P V. V is N-major (the head runs along its lines); a step is 16 keys.
  __device__ __forceinline__ void MultiplyValues(Output& o, const Weights& p, Position at) {
    const uint64_t value = ptx::wgmma_descriptor(shared_.value[at.Slot()], kTileLineBytes, 1024);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kScores / 8; ++step) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        ptx::wgmma<1, T>(o[part], p[step],
                         ptx::wgmma_advance(value, step * 16 * kLine * sizeof(T) +
                                                       part * (kPartDim / kLine) * kTileLineBytes),
                         true);
      }
    }
  }

  __device__ __forceinline__ void Mask(Scores& s, const Cursor& cursor) {
    const int first_key = cursor.tile.tile * Traits::kTileKeys;
    const int seen = cursor.row + 1 - first_key;
    const int seen_by_first = seen - static_cast<int>(threadIdx.x % 32 / 4);  // row of the warp
    if (seen_by_first < Traits::kTileKeys) {
      MaskScores<Traits::kRun>(s, {seen, seen + 8});
    }
  }

  // Output rows go through the warp's own 16 lines of shared memory, 64 columns at a time, to leave
  // as 16-byte stores.
  __device__ __forceinline__ void StoreOut(const Output& o, const Work& work) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x % kWarpgroup / 32;
    const int head = Head(work);
    const float gamma = params_.gate.gamma[head] * ScaleOf(params_.value, work.kv_head);
    const int first_row = FirstRow() + warp * 16;
    T* lines = shared_.out[group_ * 4 + warp];
    T* out = static_cast<T*>(params_.out) + head * params_.out_head_stride +
             (work.block.token + first_row) * params_.out_token_stride;
#pragma unroll
    for (int line = 0; line < Traits::kLines; ++line) {
      __syncwarp();
#pragma unroll
      for (int chunk = 0; chunk < 8; chunk += 2) {  // of 8 columns
        const float* x = &o[line / 2][(line % 2 * 8 + chunk) * 4];
        const int row = lane % 16;
        ptx::store_matrix_x4(lines + row * kLine + ((chunk + lane / 16) ^ (row & 7)) * 8,
                             PackPair<T>(gamma * x[0], gamma * x[1]),
                             PackPair<T>(gamma * x[2], gamma * x[3]),
                             PackPair<T>(gamma * x[4], gamma * x[5]),
                             PackPair<T>(gamma * x[6], gamma * x[7]));
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 4 * i + lane / 8;
        const int chunk = lane % 8;
        if (first_row + row >= work.block.rows) continue;
        *reinterpret_cast<uint4*>(out + row * params_.out_token_stride + line * kLine + chunk * 8) =
            *reinterpret_cast<const uint4*>(lines + row * kLine + (chunk ^ (row & 7)) * 8);
      }
    }
  }

  const Params& params_;
  Shared<Traits>& shared_;
  const int group_;
};

}  // namespace asynct::prefill_wgmma
