// Which operation on a device's memory is ordered after which: vector clocks over streams and the host.
//
// Each stream counts its operations and knows, of every other stream, up to which count it has waited. Events carry such
// knowledge from stream to stream, waiting brings it to the host, and whatever is submitted later knows what the host knows.
// Two accesses to the same bytes, one of them a write, have to be ordered; the simulated devices run everything at once and in
// the order of submission, so a program that a GPU would only sometimes get wrong is wrong here every time.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

enum Status {                                // hipError_t
  OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, NO_FILE = 301, INVALID_HANDLE = 400, NOT_FOUND = 500,
  NOT_READY = 600, LAUNCH_FAILURE = 719, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_ISOLATION = 905, CAPTURED_EVENT = 907
};

typedef std::map<long, uint64_t> Clock;      // stream: how many of its operations are known to be done

struct MemoryAccess { size_t low, high; long stream; uint64_t count; bool write; };
struct PoolBlock { size_t size; void* stream; };           // handed out by CuPy's pool: wanted bytes, stream it belongs to
struct Memory {
  char* start;
  size_t size;
  int device;                                // -1: page-locked host memory
  std::list<MemoryAccess> accesses;
  std::map<size_t, PoolBlock> blocks;        // by offset
  bool pooled = false;
  bool holds(const void* p, size_t n) const { return (char*)p >= start && (char*)p + n <= start + size; }
};
struct Graph;
struct Stream {
  int device;
  long id;
  bool blocking;                             // waits for the null stream and it for this one
  Clock known;
  uint64_t count = 0;
  Graph* graph = nullptr;                    // what it is being captured into
};
// What a graph does, in the order in which it was captured. Each launch runs it on the stream of the launch; where the capture went on to
// other streams, on ones of the graph's own, so that what is not ordered within the graph is found.
struct Graph {
  typedef std::function<Status(Stream*)> Work;
  Stream* origin;
  std::vector<std::pair<Stream*, Work>> steps;
  std::map<Stream*, Stream*> own;
  bool broken = false;
};
struct Event {
  int device;
  Clock known;
  Graph* graph = nullptr;                    // that it was captured into, where `known` is what it stands for in a launch
  std::shared_ptr<Clock> captured;
};
struct Pending {                             // an asynchronous copy to or from page-locked memory that the host has not waited for
  long stream;
  uint64_t count;
  char* host;
  std::string data;
  bool to_host;
};

struct Order {
  std::recursive_mutex mutex;                // guards everything below
  std::map<char*, Memory> memories;
  std::vector<Stream*> streams, null_streams;
  Clock host;
  std::list<Pending> pending;
  std::vector<std::string> findings;         // faults of the program under test
  std::string last_error = "no error";
  long next_id = 1;
  int devices = 2;
  size_t moved = 0;                          // bytes of device memory that operations have read or written

  // A fault: kept for the report, and the error of the call that showed it.
  Status fault(const std::string& what, Status status = LAUNCH_FAILURE) {
    findings.push_back(what);
    if (const char* file = getenv("SIMGPU_REPORT"))        // for processes that nobody asks for their findings
      if (FILE* f = fopen(file, "a")) {
        fprintf(f, "%s\n", what.c_str());
        fclose(f);
      }
    return refuse(what, status);
  }
  // An error that a right program may meet too, and handle.
  Status refuse(const std::string& why, Status status) {
    last_error = why;
    return status;
  }

  Stream* null_stream(int device) {
    while ((int)null_streams.size() < devices) {
      null_streams.push_back(new Stream{(int)null_streams.size(), next_id++, true, {}});
      streams.push_back(null_streams.back());
    }
    return null_streams[device];
  }
  Stream* find(void* handle, int device) {   // 1 and 2 are the legacy and the per-thread default stream
    return (uintptr_t)handle > 2 ? (Stream*)handle : null_stream(device);
  }
  Memory* find(const void* p) {
    auto next = memories.upper_bound((char*)p);
    if (next == memories.begin()) return nullptr;
    Memory& m = std::prev(next)->second;
    return (char*)p < m.start + m.size ? &m : nullptr;
  }

  static bool knows(const Clock& clock, long stream, uint64_t count) {
    auto found = clock.find(stream);
    return found != clock.end() && found->second >= count;
  }
  static void learn(Clock& clock, const Clock& other) {
    for (auto& [stream, count] : other)
      if (clock[stream] < count) clock[stream] = count;
  }

  // What a stream is ordered behind without any event: the null stream and the blocking streams of its device.
  void learn_by_kind(Stream* s) {
    if (s == null_stream(s->device)) {
      for (Stream* other : streams)
        if (other->device == s->device && other->blocking) learn(s->known, other->known);
    } else if (s->blocking) {
      learn(s->known, null_stream(s->device)->known);
    }
  }
  void begin(Stream* s) {                    // an operation is submitted
    learn(s->known, host);
    learn_by_kind(s);
    s->known[s->id] = ++s->count;
  }

  // The operation that began last on stream s reads or writes bytes of m.
  Status note(Stream* s, Memory* m, size_t low, size_t high, bool write, const std::string& what) {
    for (auto a = m->accesses.begin(); a != m->accesses.end();) {
      if (knows(host, a->stream, a->count)) {                          // so does whatever is submitted from now on
        a = m->accesses.erase(a);
        continue;
      }
      const bool meets = a->low < high && low < a->high;
      const bool ordered = a->stream == s->id || knows(s->known, a->stream, a->count);
      if (meets && (write || a->write) && !ordered)
        return fault(what + ": stream " + std::to_string(s->id) + (write ? " writes" : " reads") + " memory that stream " +
                     std::to_string(a->stream) + (a->write ? " writes" : " reads") + ", and no event, stream or host wait orders them");
      // Forget what lies wholly inside and before: whoever is ordered after this access is ordered after that one.
      const bool covered = a->low >= low && a->high <= high && ordered;
      if (covered && (write || (!a->write && a->stream == s->id))) a = m->accesses.erase(a);
      else ++a;
    }
    if (m->device >= 0) moved += high - low;
    m->accesses.push_back({low, high, s->id, s->count, write});
    return OK;
  }
  Status note_at(Stream* s, const void* p, size_t n, bool write, const std::string& what) {
    Memory* m = find(p);
    if (!m || !m->holds(p, n)) return fault(what + ": an operand lies outside its allocation");
    return note(s, m, (char*)p - m->start, (char*)p - m->start + n, write, what);
  }

  void host_waits(const Clock& clock) {
    learn(host, clock);
    for (auto p = pending.begin(); p != pending.end();) {
      if (!knows(host, p->stream, p->count)) {
        ++p;
        continue;
      }
      if (p->to_host) memcpy(p->host, p->data.data(), p->data.size());
      else if (memcmp(p->host, p->data.data(), p->data.size()))
        fault("pinned host memory was changed while an asynchronous copy to the device was reading it");
      p = pending.erase(p);
    }
  }

  void pool_gave(void* p, size_t size, void* stream) {
    Memory* m = find(p);
    if (!m) return;
    m->pooled = true;
    m->blocks[(char*)p - m->start] = {size, stream};
  }
  // CuPy's pool takes a block back as soon as Python lets go of it and hands it out again to the same stream at once. So another
  // stream that may still use it is a fault here and now, whether or not the block is handed out again.
  void pool_took(void* p) {
    Memory* m = find(p);
    if (!m) return;
    const size_t low = (char*)p - m->start;
    auto block = m->blocks.find(low);
    if (block == m->blocks.end()) return;
    const size_t high = low + block->second.size;
    Stream* home = find(block->second.stream, m->device);
    m->blocks.erase(block);
    learn_by_kind(home);
    Clock known = home->known;
    learn(known, host);
    for (auto& a : m->accesses)
      if (a.low < high && low < a.high && a.stream != home->id && !knows(known, a.stream, a.count)) {
        fault("a block of " + std::to_string(high - low) + " bytes of stream " + std::to_string(home->id) + " was freed while stream " +
              std::to_string(a.stream) + " may still use it");
        break;
      }
    memset(p, 0xFF, high - low);             // NaN: whoever reads it now sees it
  }
};
