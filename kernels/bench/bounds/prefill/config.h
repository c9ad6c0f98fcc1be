// What the skeleton can be compiled as.
#pragma once

namespace asynct::bench {

inline constexpr int kHeadDim = 128;
inline constexpr int kPage = 16;                    // keys in a page of the cache
inline constexpr int kWarpgroup = 128;              // threads
inline constexpr int kWarpgroupRows = 64;           // query rows of a consumer warpgroup
inline constexpr int kLine = 64;                    // bf16 elements in a 128-byte swizzled line
inline constexpr int kHalves = kHeadDim / kLine;    // lines of a head
inline constexpr int kWorkSlots = 2;

enum class Schedule {
  kSerial,   // QK, gate, PV one after the other: other warpgroups fill the tensor cores
  kPaired,   // PV of tile i and QK of tile i + 1 go out together, then the gate
  kLinked,   // the same, across works too: the next work's first QK runs under the epilogue
  kOverlap,  // QK of tile i + 1, then PV of tile i, which runs under the gate of tile i + 1
};

struct Config {
  bool paged;
  bool gated;             // false: p is the score itself, rounded to bf16
  int run;                // consecutive keys a thread owns: 2 (natural order), or box_keys / 4
  int tile_keys = 128;
  int stages = 2;
  int consumers = 2;      // warpgroups
  int heads = 2;          // query heads of one KV head that the warpgroups are dealt over
  Schedule schedule = Schedule::kPaired;
  bool turns = true;      // warpgroups issue their matrix products in turn
  bool query_registers = true;

  constexpr int threads() const { return (1 + consumers) * kWarpgroup; }
  constexpr int row_block() const { return consumers / heads * kWarpgroupRows; }
  // Keys per TMA box: a page, or as many as the key order needs.
  constexpr int box_keys() const { return paged ? kPage : run == 2 ? tile_keys : 4 * run; }
  constexpr int consumer_registers() const { return consumers == 2 ? 232 : 160; }
  constexpr int producer_registers() const { return consumers == 2 ? 40 : 32; }
  // What setmaxnreg may hand out: the registers of the launch. Asking for one more waits for ever.
  constexpr bool registers_fit() const {
    const int launched = 65536 / threads() / 8 * 8 * threads();
    return (consumers * consumer_registers() + producer_registers()) * kWarpgroup <= launched;
  }
};

}  // namespace asynct::bench
