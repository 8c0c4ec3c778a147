// Runs the threads of a kernel on the CPU, one after the other, and checks what they do.
//
// Kernels are compiled with -fsanitize=thread, which puts a call before every load and store; those calls end here instead of in
// the sanitizer's library. So each access is seen: its bounds, its alignment and which other threads may meet it. A kernel without
// barriers is a plain loop. With them each CUDA thread is a fiber, a stack of its own, and gives up the CPU where it has to wait.
#include <csetjmp>
#include <sys/mman.h>
#include <ucontext.h>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>
#include "simt.h"

namespace {
struct uint3 { unsigned x, y, z; };
struct Context { uint3 thread, block, block_size, grid_size; };
enum State { READY, AT_BARRIER, AT_WARP, DONE };
constexpr size_t STACK = 64 << 10;
constexpr int WARP = 32, MOST_THREADS = 1024;

struct Fiber {
  Context context;
  jmp_buf here;
  ucontext_t first;                          // only to enter the stack once; setjmp is ten times faster after that
  bool started;
  State state;
  char* stack;
  int line, predicate, combine, combined;    // at a barrier
  int ballot, source, site;            // at a warp operation
  unsigned mask;
  char value[16], out[16];
  uint32_t warp_epoch;                       // warp operations passed
};

struct Access {                              // one thread's access, in time
  int64_t who = -1;                          // block * 1024 + thread
  uint32_t epoch = 0, warp_epoch = 0;
};
struct Cell {                                // what happened last to one element
  Access written, read, read_before;         // two readers: a writer may be ordered after the last and not after another
  bool by_atomic = false;
  int64_t block = -1;                        // shared memory: of which block this is
};
struct Region {
  char *low, *high;
  SimtRegion* given;
  std::vector<Cell> cells;
};
struct Site { int bytes = 0; std::vector<uint64_t> sectors; };

std::mutex one_launch;
SimtLaunch* launch;
std::vector<Fiber> fibers;
Fiber looping;                               // stands for the thread of a kernel that runs as a loop
Fiber* running;
jmp_buf scheduler, given_up;
int threads;
char* dynamic_shared;
constexpr size_t BEHIND = 1 << 16;           // nobody's memory lies behind shared memory, so that what runs over is seen
std::string failure;
uint32_t epoch;                              // barriers that this block has passed
int64_t block_number;
std::map<char*, Region> regions;
std::vector<Cell> shared_cells;              // byte by byte, static shared memory first
std::map<std::pair<void*, long>, Site> warp_accesses;      // (instruction, how often and by which warp)
std::map<std::pair<void*, int>, long> times;               // (instruction, thread)
}  // namespace

extern "C" { Context* simt_current; }

namespace {
[[noreturn]] void fail(const std::string& what) {
  const Context& c = running->context;
  char where[128];
  snprintf(where, sizeof where, " (block %u,%u,%u thread %u,%u,%u)", c.block.x, c.block.y, c.block.z, c.thread.x, c.thread.y,
           c.thread.z);
  failure = what + where;
  longjmp(given_up, 1);
}

int number(const Fiber* f) {
  const Context& c = f->context;
  return c.thread.x + c.block_size.x * (c.thread.y + c.block_size.y * c.thread.z);
}

void wait_as(State state) {
  if (!launch->fibers) fail("a synchronising call in a kernel that was taken to have none");
  running->state = state;
  if (!_setjmp(running->here)) _longjmp(scheduler, 1);
}

void enter() {                               // the bottom of every fiber's stack; a fiber serves the later blocks too
  for (;;) {
    launch->call(launch->arguments);
    running->state = DONE;
    if (!_setjmp(running->here)) _longjmp(scheduler, 1);
  }
}

void resume(Fiber* f) {
  running = f;
  simt_current = &f->context;
  f->state = READY;
  if (_setjmp(scheduler)) return;
  if (f->started) _longjmp(f->here, 1);
  f->started = true;
  getcontext(&f->first);
  f->first.uc_stack.ss_sp = f->stack;
  f->first.uc_stack.ss_size = STACK;
  f->first.uc_link = nullptr;
  makecontext(&f->first, enter, 0);
  setcontext(&f->first);
}

// ------------------------------------------------------------------------------------------------------------- the checker
int64_t myself() { return block_number * MOST_THREADS + number(running); }

bool happened_before(const Access& a) {
  if (a.who == myself()) return true;
  if (a.who / MOST_THREADS != block_number) return false;              // nothing orders two blocks
  if (a.epoch < epoch) return true;                                    // a barrier lies between
  return a.who % MOST_THREADS / WARP == number(running) / WARP && a.warp_epoch < running->warp_epoch;
}

[[noreturn]] void race(const char* kind, const char* memory, const Access& other) {
  fail(std::string("data race (") + kind + ") on " + memory + " memory with block " + std::to_string(other.who / MOST_THREADS) +
       " thread " + std::to_string(other.who % MOST_THREADS));
}

void touch(Cell& cell, bool write, bool atomic, const char* memory) {
  const Access now{myself(), epoch, running->warp_epoch};
  if (cell.written.who >= 0 && !(atomic && cell.by_atomic) && !happened_before(cell.written))
    race(write ? "write after write" : "read after write", memory, cell.written);
  if (!write) {
    if (cell.read.who != now.who) cell.read_before = cell.read;
    cell.read = now;
    return;
  }
  for (const Access* read : {&cell.read, &cell.read_before})
    if (read->who >= 0 && !happened_before(*read)) race("write after read", memory, *read);
  cell.written = now;
  cell.by_atomic = atomic;
  cell.read = cell.read_before = Access();
}

void widen(long& low, long& high, long from, long to) {
  if (low < 0 || from < low) low = from;
  if (to > high) high = to;
}

bool is_local(char* p) {                     // on the thread's own stack
  if (launch->fibers) return p >= running->stack && p < running->stack + STACK;
  char* top = (char*)__builtin_frame_address(0);
  return p > top - 4096 && p < top + (1 << 20);
}

void on_shared(char* p, int size, bool write, bool atomic) {
  const size_t fixed = launch->bss_end - launch->data_end;
  const size_t offset = p >= launch->data_end && p < launch->bss_end ? p - launch->data_end : fixed + (p - dynamic_shared);
  for (int i = 0; i < size; ++i) {
    Cell& cell = shared_cells[offset + i];
    if (cell.block != block_number) {
      cell = Cell();
      cell.block = block_number;
    }
    touch(cell, write, atomic, "shared");
  }
}

void count_sectors(char* p, int size, void* instruction) {             // 32-byte sectors per warp and instruction
  const long time = times[{instruction, number(running)}]++;
  Site& site = warp_accesses[{instruction, time * MOST_THREADS + number(running) / WARP}];
  site.bytes += size;
  site.sectors.push_back((uintptr_t)p >> 5);
  site.sectors.push_back((uintptr_t)(p + size - 1) >> 5);
}

void access(char* p, int size, bool write, bool atomic, void* instruction, bool may_be_unaligned = false) {
  if (!launch || !launch->check || !running) return;
  if (p == (char*)&simt_current || (size_t)(p - (char*)&running->context) < sizeof(Context) || is_local(p)) return;
  ++launch->accesses;
  if (!may_be_unaligned && (uintptr_t)p % size) fail("misaligned " + std::to_string(size) + "-byte access");
  if ((p >= launch->data_end && p < launch->bss_end) || (p >= dynamic_shared && p < dynamic_shared + launch->shared_bytes))
    return on_shared(p, size, write, atomic);
  if (launch->shared_bytes && p >= dynamic_shared && p < dynamic_shared + launch->shared_bytes + BEHIND)
    fail("access outside any device allocation, past the end of " + std::to_string(launch->shared_bytes) + " bytes of shared memory");
  if (p >= launch->image && p < launch->data_end && !write) return;    // tables of constants
  auto next = regions.upper_bound(p);
  if (next == regions.begin()) fail("access outside any device allocation");
  Region& region = std::prev(next)->second;
  if (p + size > region.high) {
    const long past = p + size - region.high;
    fail(std::string("out-of-bounds ") + (write ? "write, " : "read, ") + std::to_string(past) + " bytes past the end of a " +
         std::to_string(region.high - region.low) + "-byte array");
  }
  if (write && region.given->read_only) fail("write to an array that the caller holds read-only");
  const long from = p - region.low;
  if (write) widen(region.given->write_low, region.given->write_high, from, from + size);
  if (!write || atomic) widen(region.given->read_low, region.given->read_high, from, from + size);
  if (launch->check >= 2) {
    const int granule = region.given->granule;
    if (region.cells.empty()) region.cells.resize(region.given->size / granule + 1);     // most of what is in memory no kernel touches
    for (int i = 0; i < size; i += granule) touch(region.cells[(from + i) / granule], write, atomic, "global");
  }
  if (launch->check >= 3) count_sectors(p, size, instruction);
}

void sum_sectors() {
  for (auto& [key, site] : warp_accesses) {
    std::sort(site.sectors.begin(), site.sectors.end());
    ++launch->requests;
    launch->sectors += std::unique(site.sectors.begin(), site.sectors.end()) - site.sectors.begin();
    launch->bytes += site.bytes;
  }
  warp_accesses.clear();
  times.clear();
}

// ----------------------------------------------------------------------------------------------------------- the scheduler
bool pass_barrier() {                        // true when every thread that still runs was at the barrier
  int alive = 0, waiting = 0, any = 0, all = 1, count = 0, line = -1;
  bool mixed = false;
  for (int i = 0; i < threads; ++i) {
    Fiber& f = fibers[i];
    if (f.state == DONE) continue;
    ++alive;
    if (f.state != AT_BARRIER) continue;
    ++waiting;
    if (line >= 0 && line != f.line) mixed = true;
    line = f.line;
    any |= f.predicate;
    all &= f.predicate;
    count += f.predicate;
  }
  if (!alive || waiting < alive) return false;
  running = &fibers[0];
  if (mixed) fail("barrier divergence: threads of a block wait at different __syncthreads() lines");
  ++epoch;
  for (int i = 0; i < threads; ++i)
    if (fibers[i].state == AT_BARRIER) {
      fibers[i].state = READY;
      fibers[i].combined = fibers[i].combine == 1 ? any : fibers[i].combine == 2 ? all : count;
    }
  return true;
}

bool pass_warp_operation(int first, int lane, unsigned& seen) {        // true when all lanes in the thread's mask have come
  Fiber& f = fibers[first + lane];
  unsigned lanes = 0, votes = 0;
  bool complete = true;
  for (int k = 0; k < WARP && first + k < threads; ++k) {
    if (!(f.mask >> k & 1)) continue;
    Fiber& other = fibers[first + k];
    if (other.state == DONE) {
      running = &f;
      fail("warp operation names lane " + std::to_string(k) + ", which has exited");
    }
    if (other.state != AT_WARP || other.mask != f.mask || other.site != f.site) complete = false;
    lanes |= 1u << k;
  }
  if (!complete) return false;
  seen |= lanes;
  for (int k = 0; k < WARP; ++k)
    if (lanes >> k & 1) {
      int vote;
      memcpy(&vote, fibers[first + k].value, sizeof vote);
      votes |= (unsigned)!!vote << k;
    }
  for (int k = 0; k < WARP; ++k) {
    if (!(lanes >> k & 1)) continue;
    Fiber& other = fibers[first + k];
    if (other.ballot) memcpy(other.out, &votes, sizeof votes);
    else if (lanes >> other.source & 1) memcpy(other.out, fibers[first + other.source].value, sizeof other.out);
    else memset(other.out, 0xA5, sizeof other.out);                    // a lane outside the mask: undefined, so make it visible
    other.state = READY;
    ++other.warp_epoch;
  }
  return true;
}

bool release() {                             // let those go on that have met; false: nobody can
  if (pass_barrier()) return true;
  bool any = false;
  for (int first = 0; first < threads; first += WARP) {
    unsigned seen = 0;
    for (int lane = 0; lane < WARP && first + lane < threads; ++lane)
      if (fibers[first + lane].state == AT_WARP && !(seen >> lane & 1)) any |= pass_warp_operation(first, lane, seen);
  }
  return any;
}

void start(Fiber& f, int thread, uint3 block) {
  const unsigned* b = launch->block;
  const unsigned t = thread;
  f.context = {{t % b[0], t / b[0] % b[1], t / b[0] / b[1]}, block, {b[0], b[1], b[2]},
               {launch->grid[0], launch->grid[1], launch->grid[2]}};
  f.state = READY;
  f.warp_epoch = 0;
}

void run_block(const std::vector<int>& order, uint3 block) {
  if (!launch->fibers) {
    running = &looping;
    simt_current = &looping.context;
    for (int t : order) {
      start(looping, t, block);
      launch->call(launch->arguments);
    }
    return;
  }
  for (int t = 0; t < threads; ++t) start(fibers[t], t, block);
  for (;;) {
    for (int t : order)
      if (fibers[t].state == READY) resume(&fibers[t]);
    auto waiting = std::find_if(fibers.begin(), fibers.begin() + threads, [](const Fiber& f) { return f.state != DONE; });
    if (waiting == fibers.begin() + threads) return;
    if (!release()) {
      running = &*waiting;
      fail("deadlock: some threads wait at a barrier or warp operation that the others never reach");
    }
  }
}

void run_grid() {
  const unsigned* g = launch->grid;
  const long blocks = (long)g[0] * g[1] * g[2];
  std::mt19937 random(launch->seed);
  std::vector<long> turn(launch->only, launch->only + launch->only_count);
  std::vector<int> order(threads);
  if (launch->seed && !launch->only) {
    turn.resize(blocks);
    for (long i = 0; i < blocks; ++i) turn[i] = i;
    if (launch->seed == 1) std::reverse(turn.begin(), turn.end());
    else std::shuffle(turn.begin(), turn.end(), random);
  }
  for (long i = 0; i < (turn.empty() ? blocks : (long)turn.size()); ++i) {
    block_number = turn.empty() ? i : turn[i];
    epoch = 0;
    if (launch->shared_bytes) memset(dynamic_shared, 0xFF, launch->shared_bytes);      // NaN: not initialised
    for (int t = 0; t < threads; ++t) order[t] = t;
    if (launch->seed == 1) std::reverse(order.begin(), order.end());
    else if (launch->seed) std::shuffle(order.begin(), order.end(), random);
    run_block(order, {(unsigned)(block_number % g[0]), (unsigned)(block_number / g[0] % g[1]), (unsigned)(block_number / g[0] / g[1])});
    if (launch->check >= 3) sum_sectors();
  }
}

void prepare() {
  failure.clear();
  warp_accesses.clear();
  times.clear();
  regions.clear();
  launch->accesses = launch->requests = launch->sectors = launch->bytes = 0;
  for (size_t i = 0; i < launch->region_count; ++i) {
    SimtRegion& r = launch->regions[i];
    r.read_low = r.read_high = r.write_low = r.write_high = -1;
    regions[r.start] = Region{r.start, r.start + r.size, &r, {}};
  }
  shared_cells.clear();
  if (launch->check) shared_cells.resize(launch->bss_end - launch->data_end + launch->shared_bytes + 16);
  if (!launch->fibers || (int)fibers.size() >= threads) return;
  const size_t old = fibers.size();
  fibers.resize(threads);                    // nobody is on a fiber now, so they may move
  for (size_t i = old; i < fibers.size(); ++i)
    fibers[i].stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (auto& f : fibers) f.started = false;
}
}  // namespace

extern "C" int simt_launch(SimtLaunch* l) {
  std::lock_guard<std::mutex> guard(one_launch);
  const unsigned *g = l->grid, *b = l->block;
  const unsigned long size = (unsigned long)b[0] * b[1] * b[2];
  if (size < 1 || size > MOST_THREADS || b[2] > 64 || g[0] > 0x7fffffffu || g[1] > 65535 || g[2] > 65535) {
    snprintf(l->message, l->message_size, "invalid launch configuration");
    return 1;
  }
  launch = l;
  threads = size;
  std::vector<char> shared(l->shared_bytes ? l->shared_bytes + 16 + BEHIND : 16);
  dynamic_shared = (char*)(((uintptr_t)shared.data() + 15) & ~(uintptr_t)15);
  prepare();
  running = &looping;
  int failed = setjmp(given_up);
  if (!failed) run_grid();
  else {
    for (auto& f : fibers) f.started = false;                          // their stacks hold half a kernel
    snprintf(l->message, l->message_size, "%s", failure.c_str());
  }
  running = nullptr;
  simt_current = nullptr;
  launch = nullptr;
  return failed ? 1 : 0;
}

// -------------------------------------------------------------------------------------------------- what a kernel calls
extern "C" {
unsigned simt_lane() { return number(running) % WARP; }
void* simt_dynamic_shared() { return dynamic_shared; }
void simt_trap(const char* message, int line) { fail(std::string(message) + " at line " + std::to_string(line)); }
void simt_atomic(void* p, int size) { access((char*)p, size, true, true, __builtin_return_address(0)); }

int simt_barrier(int line, int predicate, int combine) {
  running->line = line;
  running->predicate = predicate;
  running->combine = combine;
  wait_as(AT_BARRIER);
  return running->combined;
}

void simt_warp(int ballot, unsigned mask, const void* value, void* out, int size, int source, int site) {
  if (size > (int)sizeof running->value) fail("warp operation on more than 16 bytes");
  if (!(mask >> simt_lane() & 1)) fail("calling lane is not in the mask of its warp operation");
  running->ballot = ballot;
  running->mask = mask;
  running->source = source & (WARP - 1);
  running->site = site;
  memcpy(running->value, value, size);
  wait_as(AT_WARP);
  memcpy(out, running->out, size);
}

unsigned simt_active_mask() {
  if (!launch->fibers) return 1u << simt_lane();
  unsigned mask = 0;
  const int first = number(running) / WARP * WARP;
  for (int i = first; i < std::min(first + WARP, threads); ++i)
    if (fibers[i].state != DONE) mask |= 1u << (i - first);
  return mask;
}

// ---------------------------------------------------------------- what -fsanitize=thread makes a kernel call at each access
#define HANDLERS(N)                                                                                                     \
  void __tsan_read##N(void* p) { access((char*)p, N, false, false, __builtin_return_address(0)); }                      \
  void __tsan_write##N(void* p) { access((char*)p, N, true, false, __builtin_return_address(0)); }                      \
  void __tsan_volatile_read##N(void* p) { access((char*)p, N, false, false, __builtin_return_address(0)); }             \
  void __tsan_volatile_write##N(void* p) { access((char*)p, N, true, false, __builtin_return_address(0)); }             \
  void __tsan_unaligned_read##N(void* p) { access((char*)p, N, false, false, __builtin_return_address(0), true); }      \
  void __tsan_unaligned_write##N(void* p) { access((char*)p, N, true, false, __builtin_return_address(0), true); }
HANDLERS(1)
HANDLERS(2)
HANDLERS(4)
HANDLERS(8)
HANDLERS(16)
void __tsan_read_range(void* p, size_t n) {
  for (size_t i = 0; i < n; ++i) access((char*)p + i, 1, false, false, __builtin_return_address(0));
}
void __tsan_write_range(void* p, size_t n) {
  for (size_t i = 0; i < n; ++i) access((char*)p + i, 1, true, false, __builtin_return_address(0));
}
void __tsan_vptr_read(void*) {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
