// A HIP runtime without a GPU: what the real CuPy (its ROCm wheel) needs of libamdhip64, libhiprtc and libhipblas.
//
// Device memory is host memory, kernels are compiled by g++ and run by simt.cpp, and every operation is noted in `order`. What CuPy
// never calls is not here: build.py makes a stub of it that says so and fails.
#include <dlfcn.h>
#include <cstdio>
#include "blas.h"
#include "order.h"
#include "simt.h"
#define API extern "C" __attribute__((visibility("default")))
#define LOCKED std::lock_guard<std::recursive_mutex> locked(order.mutex)

namespace {
constexpr int MOST_DEVICES = 16;
constexpr size_t DEVICE_BYTES = 1ull << 34;
Order order;
thread_local int current;                    // CUDA's current device is the thread's own too
bool peer[MOST_DEVICES][MOST_DEVICES];       // enabled access: [from][to]
bool peers_possible = true;
size_t used[MOST_DEVICES], limit = DEVICE_BYTES;
int check = 2;                               // of each launch, as in SimtLaunch
enum Counted { OPERATIONS, HOST_WAITS, ALLOCATIONS, COMPILATIONS, COUNTS };
long counts[COUNTS];

Stream* stream(void* handle) { return order.find(handle, current); }

// Do work on a stream, or keep it for later where that is being captured.
Status submit(Stream* s, Graph::Work work) {
  if (!s->graph) return work(s);
  s->graph->steps.push_back({s, work});
  return OK;
}

// Whether anything is being captured; what asks cannot be, and so ends the capture.
bool capturing() {
  bool found = false;
  for (Stream* s : order.streams)
    if (s->graph) found = s->graph->broken = true;
  return found;
}
Status refuse_capture() { return order.refuse("operation not permitted when stream is capturing", CAPTURE_UNSUPPORTED); }
Status refuse_event() {
  capturing();
  return order.refuse("operation not permitted on an event last recorded in a capturing stream", CAPTURED_EVENT);
}

void begin(Stream* s) {
  ++counts[OPERATIONS];
  order.begin(s);
}

void wait_for(const Clock& clock) {
  ++counts[HOST_WAITS];
  order.host_waits(clock);
}

Status allocate(void** p, size_t size, int device) {
  LOCKED;
  ++counts[ALLOCATIONS];
  if (device >= 0 && used[device] + size > limit) return order.refuse("out of memory", OUT_OF_MEMORY);
  char* start = (char*)aligned_alloc(512, (size + 1023) / 512 * 512);
  memset(start, 0xFF, size);                 // NaN: not initialised
  order.memories[start] = Memory{start, size, device, {}, {}};
  if (device >= 0) used[device] += size;
  *p = start;
  return OK;
}

Status copy(void* to, const void* from, size_t n, Stream* s, bool asynchronous) {
  if (!n) return OK;
  if (!asynchronous && capturing()) return refuse_capture();
  begin(s);
  Memory *source = order.find(from), *target = order.find(to);
  const bool from_host = !source || source->device < 0, to_host = !target || target->device < 0;
  if ((source && !source->holds(from, n)) || (target && !target->holds(to, n))) return order.fault("copy out of bounds");
  if (source)
    if (Status e = order.note_at(s, from, n, false, "copy")) return e;
  if (target)
    if (Status e = order.note_at(s, to, n, true, "copy")) return e;
  std::string data((const char*)from, n);
  if (from_host)                             // a copy that follows on a stream sees what an earlier one has yet to bring to the host
    for (auto& p : order.pending)
      if (p.to_host && p.host <= (char*)from && p.host + p.data.size() >= (char*)from + n)
        data.assign(p.data.data() + ((char*)from - p.host), n);
  const bool pinned = asynchronous && ((from_host && source && !to_host) || (to_host && target && !from_host));
  if (pinned && to_host) {                   // the host sees NaN until it has waited
    order.pending.push_back({s->id, s->count, (char*)to, data, true});
    memset(to, 0xFF, n);
    return OK;
  }
  memcpy(to, data.data(), n);
  if (pinned) order.pending.push_back({s->id, s->count, (char*)from, data, false});
  else if (from_host || to_host) wait_for(s->known);                   // pageable memory: the driver waits
  return OK;
}
}  // namespace

// ------------------------------------------------------------------------------------------------------- devices and memory
API Status hipGetDeviceCount(int* n) { *n = order.devices; return OK; }
API Status hipGetDevice(int* d) { *d = current; return OK; }
API Status hipSetDevice(int d) {
  if (d < 0 || d >= order.devices) return order.refuse("invalid device ordinal", INVALID_DEVICE);
  current = d;
  return OK;
}
API Status hipDriverGetVersion(int* v) { *v = 70051831; return OK; }
API Status hipRuntimeGetVersion(int* v) { *v = 70051831; return OK; }
API Status hipGetLastError() { return OK; }
API Status hipPeekAtLastError() { return OK; }
API const char* hipGetErrorName(Status e) {
  switch (e) {
    case OUT_OF_MEMORY: return "hipErrorOutOfMemory";
    case INVALID_DEVICE: return "hipErrorInvalidDevice";
    case NO_FILE: return "hipErrorFileNotFound";
    case INVALID_HANDLE: return "hipErrorInvalidHandle";
    case NOT_FOUND: return "hipErrorNotFound";
    case NOT_READY: return "hipErrorNotReady";
    case CAPTURE_UNSUPPORTED: return "hipErrorStreamCaptureUnsupported";
    case CAPTURE_INVALIDATED: return "hipErrorStreamCaptureInvalidated";
    case CAPTURE_ISOLATION: return "hipErrorStreamCaptureIsolation";
    case CAPTURED_EVENT: return "hipErrorCapturedEvent";
    default: return "hipErrorLaunchFailure";
  }
}
API const char* hipGetErrorString(Status) { return order.last_error.c_str(); }
API Status hipDeviceGetAttribute(int* v, int attribute, int) {
  *v = attribute == 23 ? 8 : attribute == 61 ? 0 : 1024;               // 23 and 61: the compute capability, 8.0
  return OK;
}
API Status hipGetDevicePropertiesR0600(char* p, int d) {               // hipDeviceProp_t by offset: its header is not at hand
  memset(p, 0, 1472);
  snprintf(p, 255, "simulated device %d", d);
  *(size_t*)(p + 288) = DEVICE_BYTES;
  *(size_t*)(p + 296) = 49152;               // shared memory per block
  int* v = (int*)(p + 304);
  v[0] = 65536;                              // registers per block
  v[1] = 32;                                 // warp size
  v[4] = v[5] = v[6] = 1024;                 // threads per block and along x, y
  v[7] = 64;
  v[8] = 0x7fffffff;                         // grid
  v[9] = v[10] = 65535;
  v[11] = 1000000;                           // clock rate
  v[14] = 9;                                 // capability
  return OK;
}
API Status hipDeviceGetPCIBusId(char* b, int n, int d) { snprintf(b, n, "0000:%02x:00.0", d); return OK; }
API Status hipDeviceGetLimit(size_t* v, int) { *v = 1 << 23; return OK; }
API Status hipDeviceCanAccessPeer(int* r, int from, int to) { *r = from != to && peers_possible; return OK; }
API Status hipDeviceEnablePeerAccess(int to, unsigned) { peer[current][to] = true; return OK; }
API Status hipDeviceDisablePeerAccess(int to) { peer[current][to] = false; return OK; }
API Status hipMemGetInfo(size_t* free, size_t* total) { *total = limit; *free = limit - used[current]; return OK; }
API Status hipMalloc(void** p, size_t n) { return allocate(p, n, current); }
API Status hipMallocManaged(void** p, size_t n, unsigned) { return allocate(p, n, current); }
API Status hipHostMalloc(void** p, size_t n, unsigned) { return allocate(p, n, -1); }
API Status hipFree(void* p) {
  LOCKED;
  auto found = order.memories.find((char*)p);
  if (found == order.memories.end()) return p ? order.fault("free of an address that was not allocated", INVALID_VALUE) : OK;
  Memory& m = found->second;
  if (m.device >= 0) used[m.device] -= m.size;
  for (Stream* s : order.streams) order.host_waits(s->known);          // freeing waits for all devices
  memset(p, 0xFF, m.size);
  free(p);
  order.memories.erase(found);
  return OK;
}
API Status hipHostFree(void* p) { return hipFree(p); }
API Status hipPointerGetAttributes(int* a, const void* p) {
  LOCKED;
  Memory* m = order.find(p);
  memset(a, 0, 32);
  a[0] = !m ? 99 : m->device < 0 ? 0 : 1;    // the types that CuPy's HIP layer maps to CUDA's host and device
  if (!m) return OK;
  a[1] = m->device < 0 ? 0 : m->device;
  *(void**)(a + 2) = *(void**)(a + 4) = (void*)p;
  return OK;
}
API Status hipMemcpy(void* d, const void* s, size_t n, int) { LOCKED; return copy(d, s, n, stream(nullptr), false); }
API Status hipMemcpyAsync(void* d, const void* s, size_t n, int, void* on) {
  LOCKED;
  return submit(stream(on), [=](Stream* t) { return copy(d, s, n, t, true); });
}
API Status hipMemcpyPeer(void* d, int, const void* s, int, size_t n) { LOCKED; return copy(d, s, n, stream(nullptr), false); }
API Status hipMemcpyPeerAsync(void* d, int, const void* s, int, size_t n, void* on) { return hipMemcpyAsync(d, s, n, 0, on); }
API Status hipMemsetAsync(void* d, int value, size_t n, void* on) {
  LOCKED;
  return submit(stream(on), [=](Stream* s) {
    begin(s);
    if (Status e = order.note_at(s, d, n, true, "memset")) return e;
    memset(d, value, n);
    return OK;
  });
}
API Status hipMemset(void* d, int value, size_t n) { return hipMemsetAsync(d, value, n, nullptr); }

// ------------------------------------------------------------------------------------------------------- streams and events
API Status hipStreamCreateWithPriority(void** s, unsigned flags, int) {
  LOCKED;
  order.streams.push_back(new Stream{current, order.next_id++, !(flags & 1), {}});
  *s = order.streams.back();
  return OK;
}
API Status hipStreamCreateWithFlags(void** s, unsigned flags) { return hipStreamCreateWithPriority(s, flags, 0); }
API Status hipStreamCreate(void** s) { return hipStreamCreateWithPriority(s, 0, 0); }
API Status hipStreamDestroy(void*) { return OK; }          // what it did stays in the clocks
API Status hipStreamGetFlags(void* s, unsigned* flags) { *flags = !stream(s)->blocking; return OK; }
API Status hipStreamGetPriority(void*, int* p) { *p = 0; return OK; }
API int hipGetStreamDeviceId(void* s) { return stream(s)->device; }
API Status hipStreamSynchronize(void* handle) {
  LOCKED;
  if (capturing()) return refuse_capture();
  Stream* s = stream(handle);
  if (s == order.null_stream(s->device)) order.learn_by_kind(s);
  wait_for(s->known);
  return OK;
}
API Status hipDeviceSynchronize() {
  LOCKED;
  if (capturing()) return refuse_capture();
  ++counts[HOST_WAITS];
  for (Stream* s : order.streams)
    if (s->device == current) order.host_waits(s->known);
  return OK;
}
API Status hipStreamQuery(void* handle) {
  LOCKED;
  Stream* s = stream(handle);
  if (s->graph && capturing()) return refuse_capture();
  return !s->count || Order::knows(order.host, s->id, s->count) ? OK : NOT_READY;
}
API Status hipStreamIsCapturing(void* s, int* r) { LOCKED; *r = stream(s)->graph ? 1 : 0; return OK; }
API Status hipStreamBeginCapture(void* handle, int) {
  LOCKED;
  Stream* s = stream(handle);
  s->graph = new Graph{s};
  return OK;
}
API Status hipStreamEndCapture(void* s, Graph** graph) {
  LOCKED;
  *graph = stream(s)->graph;
  for (Stream* other : order.streams)
    if (other->graph == *graph) other->graph = nullptr;
  return (*graph)->broken ? order.refuse("operation failed due to a previous error during capture", CAPTURE_INVALIDATED) : OK;
}
API Status hipGraphInstantiate(Graph** made, Graph* graph, void*, char*, size_t) { *made = graph; return OK; }
API Status hipGraphLaunch(Graph* graph, void* on) {
  LOCKED;
  Stream* s = stream(on);
  order.begin(s);
  for (auto& [captured, own] : graph->own) order.learn(own->known, s->known);
  for (auto& [captured, work] : graph->steps) {
    Stream*& own = captured == graph->origin ? s : graph->own[captured];
    if (!own) order.streams.push_back(own = new Stream{captured->device, order.next_id++, false, s->known});
    if (Status e = work(own)) return e;
  }
  return OK;
}
API Status hipGraphUpload(Graph*, void*) { return OK; }
API Status hipGraphDestroy(Graph*) { return OK; }          // events may name it still
API Status hipGraphExecDestroy(Graph*) { return OK; }
API Status hipEventCreateWithFlags(void** e, unsigned) { *e = new Event{current, {}}; return OK; }
API Status hipEventCreate(void** e) { return hipEventCreateWithFlags(e, 0); }
API Status hipEventDestroy(void* e) { delete (Event*)e; return OK; }
API Status hipEventRecord(void* handle, void* on) {
  LOCKED;
  Stream* s = stream(on);
  Event* e = (Event*)handle;
  if (e->device != s->device) return order.fault("an event of another device cannot be recorded on a stream", INVALID_HANDLE);
  e->graph = s->graph;
  if (!s->graph) {
    order.learn(s->known, order.host);
    order.learn_by_kind(s);
    e->known = s->known;
    return OK;
  }
  auto captured = e->captured = std::make_shared<Clock>();
  return submit(s, [=](Stream* t) { *captured = t->known; return OK; });
}
API Status hipStreamWaitEvent(void* handle, Event* e, unsigned) {
  LOCKED;
  Stream* s = stream(handle);
  const bool is_null = s == order.null_stream(s->device);
  if (e->graph && !s->graph && !is_null) s->graph = e->graph;            // the capture goes on to this stream
  if (s->graph != e->graph) {
    capturing();
    return order.refuse("dependency created on uncaptured work in another stream", CAPTURE_ISOLATION);
  }
  if (!s->graph) {
    order.learn(s->known, e->known);
    return OK;
  }
  auto captured = e->captured;
  return submit(s, [=](Stream* t) { order.learn(t->known, *captured); return OK; });
}
API Status hipEventSynchronize(Event* e) {
  LOCKED;
  if (e->graph) return refuse_event();
  wait_for(e->known);
  return OK;
}
API Status hipEventQuery(Event* e) {
  LOCKED;
  if (e->graph) return refuse_event();
  for (auto& [s, count] : ((Event*)e)->known)
    if (!Order::knows(order.host, s, count)) return NOT_READY;
  return OK;
}
API Status hipEventElapsedTime(float* ms, void*, void*) { *ms = 1; return OK; }
API Status hipLaunchHostFunc(void* s, void (*f)(void*), void* a) {
  {
    LOCKED;
    begin(stream(s));
  }
  f(a);                                      // without the lock: it may call into Python
  return OK;
}
API Status hipStreamAddCallback(void* s, void (*f)(void*, int, void*), void* a, unsigned) { f(s, 0, a); return OK; }

// ------------------------------------------------------------------------------------------------------ modules and launches
struct Module { void* handle; SimtKernel* kernels; char *image, *data_end, *bss_end; bool fibers; };
struct Function { Module* module; SimtKernel* kernel; };
static const char MARK[] = "SIMGPU ";        // then F or L, fibers or a loop, then the path of the shared object

API Status hipModuleLoadData(void** m, const char* image) {
  if (memcmp(image, MARK, sizeof MARK - 1)) return order.refuse("not a module of the simulated runtime", INVALID_VALUE);
  const char* rest = image + sizeof MARK - 1;
  void* handle = dlopen(rest + 1, RTLD_NOW);
  if (!handle) return order.refuse(dlerror(), NO_FILE);
  auto at = [&](const char* name) { return ((char* (*)())dlsym(handle, name))(); };
  *m = new Module{handle, (SimtKernel*)dlsym(handle, "simt_kernels"), at("simt_image"), at("simt_data_end"), at("simt_bss_end"), *rest == 'F'};
  return OK;
}
API Status hipModuleUnload(void*) { return OK; }
API Status hipModuleGetFunction(void** f, Module* m, const char* name) {
  for (SimtKernel* k = m->kernels; k->name; ++k)
    if (!strcmp(k->name, name)) {
      *f = new Function{m, k};
      return OK;
    }
  return order.refuse(std::string("named symbol not found: ") + name, NOT_FOUND);
}
API Status hipModuleGetGlobal(void**, size_t*, void*, const char*) { return NOT_FOUND; }
API Status hipFuncGetAttribute(int* v, int, void*) { *v = 1024; return OK; }
API Status hipOccupancyMaxActiveBlocksPerMultiprocessor(int* n, void*, int, size_t) { *n = 2; return OK; }
API Status hipOccupancyMaxPotentialBlockSize(int* grid, int* block, void*, size_t, int) { *grid = 16; *block = 256; return OK; }

struct Size { unsigned x, y, z; };
static Status launch(Function* f, Size grid, Size block, unsigned shared, Stream* s, void** arguments) {
  const std::string name = f->kernel->name;
  begin(s);
  std::vector<Memory*> of;
  std::vector<SimtRegion> regions;
  auto reach = [&](Memory* m, char* start, size_t size) {
    of.push_back(m);
    regions.push_back({start, size, 1, 0, -1, -1, -1, -1});
  };
  for (auto& [start, m] : order.memories) {
    if (m.device >= 0 && m.device != s->device && !peer[s->device][m.device]) continue;
    if (!m.pooled) reach(&m, m.start, m.size);
    else for (auto& [offset, block] : m.blocks) reach(&m, m.start + offset, block.size);
  }
  char message[512] = "";
  SimtLaunch l{f->kernel->call, arguments, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, f->module->fibers, 0, check,
               f->module->image, f->module->data_end, f->module->bss_end, regions.data(), regions.size(), message, sizeof message, 0, 0, 0, 0};
  if (simt_launch(&l)) return order.fault(name + ": " + message);
  for (size_t i = 0; i < regions.size(); ++i) {                        // the bytes from the first to the last that it touched
    const SimtRegion& r = regions[i];
    const size_t offset = r.start - of[i]->start;
    if (r.read_low >= 0)
      if (Status e = order.note(s, of[i], offset + r.read_low, offset + r.read_high, false, name)) return e;
    if (r.write_low >= 0)
      if (Status e = order.note(s, of[i], offset + r.write_low, offset + r.write_high, true, name)) return e;
  }
  return OK;
}

API Status hipModuleLaunchKernel(Function* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                 unsigned shared, void* on, void** arguments, void**) {
  LOCKED;
  Stream* s = stream(on);
  if (s->device != current)
    return order.fault(std::string("kernel ") + f->kernel->name + ": the stream belongs to another device", INVALID_HANDLE);
  if (!s->graph) return launch(f, {gx, gy, gz}, {bx, by, bz}, shared, s, arguments);
  std::vector<std::string> values;           // the arguments as they are now
  for (const SimtParameter* p = f->kernel->parameters; p->kind; ++p)
    values.emplace_back((char*)arguments[values.size()], p->kind == 'v' ? p->size : sizeof(void*));
  return submit(s, [=](Stream* t) mutable {
    std::vector<void*> pointers;
    for (auto& v : values) pointers.push_back(v.data());
    return launch(f, {gx, gy, gz}, {bx, by, bz}, shared, t, pointers.data());
  });
}

// -------------------------------------------------------------------------------- hiprtc: the compiler is a Python function
typedef int (*Compiler)(const char* source, int options, const char** option, int names, const char** name, char* out, int size);
static Compiler compiler;
struct Program { std::string source, image, log; std::vector<std::string> names; };

API Status hiprtcCreateProgram(void** p, const char* source, const char*, int, const char**, const char**) {
  *p = new Program{source, "", "", {}};
  return OK;
}
API Status hiprtcDestroyProgram(void** p) { delete (Program*)*p; return OK; }
API Status hiprtcVersion(int* major, int* minor) { *major = 9; *minor = 0; return OK; }
API const char* hiprtcGetErrorString(Status) { return "HIPRTC_ERROR_COMPILATION"; }
API Status hiprtcAddNameExpression(Program* p, const char* name) { p->names.push_back(name); return OK; }
API Status hiprtcGetLoweredName(Program* p, const char* name, const char** lowered) {
  for (auto& n : p->names)
    if (n == name) {
      *lowered = n.c_str();                  // entry points are found by the name as it was written
      return OK;
    }
  return INVALID_VALUE;
}
API int hiprtcCompileProgram(Program* p, int options, const char** option) {
  std::vector<const char*> names;
  for (auto& n : p->names) names.push_back(n.c_str());
  std::vector<char> out(65536);
  ++counts[COMPILATIONS];
  const int failed = compiler(p->source.c_str(), options, option, (int)names.size(), names.data(), out.data(), (int)out.size());
  (failed ? p->log : p->image) = out.data();
  return failed ? 6 : 0;                     // HIPRTC_ERROR_COMPILATION
}
API Status hiprtcGetCodeSize(Program* p, size_t* n) { *n = p->image.size() + 2; return OK; }
API Status hiprtcGetCode(Program* p, char* code) { memcpy(code, p->image.c_str(), p->image.size() + 1); code[p->image.size() + 1] = 0; return OK; }
API Status hiprtcGetProgramLogSize(Program* p, size_t* n) { *n = p->log.size() + 1; return OK; }
API Status hiprtcGetProgramLog(Program* p, char* log) { strcpy(log, p->log.c_str()); return OK; }

// ------------------------------------------------------------------------------------------------------------------ hipblas
struct Blas { void* stream; int pointer_mode; };
static const int BLAS_FAILED = 14, BLAS_NOT_SUPPORTED = 7;
API int hipblasCreate(Blas** h) { *h = new Blas{nullptr, 0}; return 0; }
API int hipblasDestroy(Blas*) { return 0; }
API int hipblasSetStream(Blas* h, void* s) { h->stream = s; return 0; }
API int hipblasGetStream(Blas* h, void** s) { *s = h->stream; return 0; }
API int hipblasSetPointerMode(Blas* h, int m) { h->pointer_mode = m; return 0; }
API int hipblasGetPointerMode(Blas* h, int* m) { *m = h->pointer_mode; return 0; }

template <class T, class A>
static int gemm(Blas* h, int ta, int tb, int m, int n, int k, const A* alpha, const T* a, int lda, const T* b, int ldb, const A* beta,
                T* c, int ldc) {
  if (stream(h->stream)->graph && capturing()) return BLAS_NOT_SUPPORTED;      // on CUDA CuPy refuses it itself
  if (!m || !n) return 0;
  const blas::Matrix<T> left{a, lda, ta}, right{b, ldb, tb};
  {
    LOCKED;
    Stream* s = stream(h->stream);
    begin(s);
    if (k && (order.note_at(s, a, left.bytes(m, k), false, "gemm") || order.note_at(s, b, right.bytes(k, n), false, "gemm"))) return BLAS_FAILED;
    if (order.note_at(s, c, blas::extent<T>(m, n, ldc), true, "gemm")) return BLAS_FAILED;
  }
  blas::multiply<A, T>(m, n, k, *alpha, left, right, *beta, c, ldc);
  return 0;
}
#define GEMM(LETTER, T)                                                                                                               \
  API int hipblas##LETTER##gemm(Blas* h, int ta, int tb, int m, int n, int k, const T* al, const T* a, int lda, const T* b, int ldb,  \
                                const T* be, T* c, int ldc) {                                                                         \
    return gemm<T, T>(h, ta, tb, m, n, k, al, a, lda, b, ldb, be, c, ldc);                                                            \
  }                                                                                                                                   \
  API int hipblas##LETTER##gemmStridedBatched(Blas* h, int ta, int tb, int m, int n, int k, const T* al, const T* a, int lda,         \
                                              long sa, const T* b, int ldb, long sb, const T* be, T* c, int ldc, long sc, int count) { \
    for (int i = 0; i < count; ++i)                                                                                                   \
      if (int e = gemm<T, T>(h, ta, tb, m, n, k, al, a + i * sa, lda, b + i * sb, ldb, be, c + i * sc, ldc)) return e;                \
    return 0;                                                                                                                         \
  }                                                                                                                                   \
  API int hipblas##LETTER##gemmBatched(Blas* h, int ta, int tb, int m, int n, int k, const T* al, T** a, int lda, T** b, int ldb,     \
                                       const T* be, T** c, int ldc, int count) {                                                      \
    for (int i = 0; i < count; ++i)                                                                                                   \
      if (int e = gemm<T, T>(h, ta, tb, m, n, k, al, a[i], lda, b[i], ldb, be, c[i], ldc)) return e;                                  \
    return 0;                                                                                                                         \
  }
GEMM(S, float)
GEMM(D, double)
GEMM(C, std::complex<float>)
GEMM(Z, std::complex<double>)

enum { TYPE_FLOAT, TYPE_DOUBLE, TYPE_HALF, TYPE_COMPLEX = 4, TYPE_COMPLEX_DOUBLE };     // hipDataType
API int hipblasGemmEx(Blas* h, int ta, int tb, int m, int n, int k, const void* al, const void* a, int da, int lda, const void* b, int db,
                      int ldb, const void* be, void* c, int dc, int ldc, int, int) {
  if (da == dc && db == dc) {
    if (dc == TYPE_FLOAT)
      return gemm<float, float>(h, ta, tb, m, n, k, (float*)al, (float*)a, lda, (float*)b, ldb, (float*)be, (float*)c, ldc);
    if (dc == TYPE_DOUBLE)
      return gemm<double, double>(h, ta, tb, m, n, k, (double*)al, (double*)a, lda, (double*)b, ldb, (double*)be, (double*)c, ldc);
    if (dc == TYPE_COMPLEX)
      return hipblasCgemm(h, ta, tb, m, n, k, (std::complex<float>*)al, (std::complex<float>*)a, lda, (std::complex<float>*)b, ldb,
                          (std::complex<float>*)be, (std::complex<float>*)c, ldc);
    if (dc == TYPE_COMPLEX_DOUBLE)
      return hipblasZgemm(h, ta, tb, m, n, k, (std::complex<double>*)al, (std::complex<double>*)a, lda, (std::complex<double>*)b, ldb,
                          (std::complex<double>*)be, (std::complex<double>*)c, ldc);
    if (dc == TYPE_HALF)                     // summed in float, as CuPy asks for
      return gemm<_Float16, float>(h, ta, tb, m, n, k, (float*)al, (_Float16*)a, lda, (_Float16*)b, ldb, (float*)be, (_Float16*)c, ldc);
  }
  fprintf(stderr, "simgpu: hipblasGemmEx of types %d, %d and %d is not implemented\n", da, db, dc);
  return BLAS_FAILED;
}
API int hipblasGemmStridedBatchedEx(Blas* h, int ta, int tb, int m, int n, int k, const void* al, const void* a, int da, int lda, long sa,
                                    const void* b, int db, int ldb, long sb, const void* be, void* c, int dc, int ldc, long sc, int count,
                                    int compute, int algorithm) {
  const int width = da == TYPE_COMPLEX_DOUBLE ? 16 : da == TYPE_DOUBLE || da == TYPE_COMPLEX ? 8 : da == TYPE_HALF ? 2 : 4;
  for (int i = 0; i < count; ++i)
    if (int e = hipblasGemmEx(h, ta, tb, m, n, k, al, (char*)a + i * sa * width, da, lda, (char*)b + i * sb * width, db, ldb, be,
                              (char*)c + i * sc * width, dc, ldc, compute, algorithm)) return e;
  return 0;
}

// ---------------------------------------------------------- the wheel's own compiled kernels (thrust, cub) cannot run here
API void** __hipRegisterFatBinary(void*) { static void* none; return &none; }
API void __hipRegisterFunction(...) {}
API void __hipUnregisterFatBinary(void*) {}
API Status __hipPushCallConfiguration(...) { return OK; }
API Status __hipPopCallConfiguration(...) { return OK; }
API Status hipLaunchKernel(...) { LOCKED; return order.fault("a kernel that CuPy has compiled for AMD (thrust, cub, random) cannot run on a simulated device"); }

// --------------------------------------------------------------------------------------------------------- for install.py
API void simgpu_start(Compiler c, int devices) { compiler = c; order.devices = devices; }
API void simgpu_limit(size_t bytes) { limit = bytes; }
API void simgpu_peers(int possible) { peers_possible = possible; memset(peer, 0, sizeof peer); }
API void simgpu_check(int level) { check = level; }
API int simgpu_findings() { return (int)order.findings.size(); }
API const char* simgpu_finding(int i) { return order.findings[i].c_str(); }
API void simgpu_forget() { LOCKED; order.findings.clear(); }
API long simgpu_count(int what) { return what < COUNTS ? counts[what] : (long)order.moved; }
API void simgpu_pool_gave(void* p, size_t n, void* s) { LOCKED; order.pool_gave(p, n, s); }
API void simgpu_pool_took(void* p) { LOCKED; order.pool_took(p); }
API const SimtParameter* simgpu_parameters(Function* f) { return f->kernel->parameters; }
