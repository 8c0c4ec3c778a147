// What the simulated runtime and the kernels' scheduler agree on. kernels.py mirrors these structures with ctypes.
#pragma once
#include <cstddef>

struct SimtParameter {
  char kind;                 // 'P' pointer to const, 'p' pointer, 'v' value; 0 ends the list
  char code;                 // of the pointed-to or given type: b f i u, 's' a structure, 'v' void
  int size, align;           // of that type, in bytes
};

struct SimtKernel {
  const char* name;
  void (*call)(void** arguments);
  const SimtParameter* parameters;
};

struct SimtRegion {          // memory that a kernel may touch
  char* start;
  size_t size;
  int granule;               // bytes per shadow cell: the element size where it is known, else 1
  int read_only;
  long read_low, read_high;  // filled in: the bytes that were read and written; low is -1 where none was
  long write_low, write_high;
};

struct SimtLaunch {
  void (*call)(void** arguments);
  void** arguments;
  unsigned grid[3], block[3];
  size_t shared_bytes;       // dynamic shared memory
  int fibers;                // the kernel has barriers or warp operations, so each thread needs a stack of its own
  unsigned seed;             // 0: blocks and threads in order, 1: reversed, else: shuffled
  int check;                 // 0 none, 1 memory, 2 and races between threads, 3 and coalescing counts
  char *image, *data_end, *bss_end;      // of the kernel's shared object: constants, then what stands for __shared__
  SimtRegion* regions;
  size_t region_count;
  char* message;             // why the launch failed
  size_t message_size;
  long accesses, requests, sectors, bytes;                 // counted at check 3
  const long* only;          // the blocks to run; null: all
  size_t only_count;
};

extern "C" int simt_launch(SimtLaunch*);                   // 0, or 1 with a message
