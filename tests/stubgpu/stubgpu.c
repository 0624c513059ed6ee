/* A stand-in for the CUDA runtime and driver, so that PyTorch's own CUDA allocator runs with no GPU.
 *
 * What is about memory is done for real: who owns which bytes, how many are left, which copy moves what. What is
 * about computing is not done at all: a kernel launch returns at once and leaves memory as it was.
 *
 * Whatever PyTorch imports and this file does not define gets an answer from build.py.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <search.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAX_DEVICES 64
#define PAGE ((size_t)4096)
#define GRANULE ((size_t)2 << 20) /* what expandable segments map at once */

/* One lock for everything: it is recursive because a callback may call back into CUDA. LOCKED holds it to the end of
 * the enclosing function. */
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int acquire(void) { return pthread_mutex_lock(&mutex); }
static void release(int *unused) { pthread_mutex_unlock(&mutex); }
#define LOCKED __attribute__((cleanup(release), unused)) int locked = acquire()

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static struct {
  size_t present, devices, bytes, taken; /* devices: those that CUDA_VISIBLE_DEVICES leaves of those present */
  int major, minor;
} settings = {.present = 1, .bytes = (size_t)8 << 30, .taken = 0, .major = 8, .minor = 0};

/* A typing error must not pass for a default, or a test would check another machine than the one it names. */
static void refuse(const char *name) {
  fprintf(stderr, "stubgpu: %s=%s is not understood\n", name, getenv(name));
  _exit(2);
}

static void read_number(const char *name, size_t *out, size_t most) {
  const char *text = getenv(name);
  char *end;
  if (!text) return;
  unsigned long long number = strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || number > most) refuse(name);
  *out = number;
}

/* As with the real runtime, the first bad number ends the list. */
static size_t visible(void) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  size_t shown = 0;
  if (!text) return settings.present;
  for (char *end; shown < settings.present; text = end + 1) {
    unsigned long number = strtoul(text, &end, 10);
    if (end == text || number >= settings.present) break;
    shown++;
    if (*end != ',') break;
  }
  return shown;
}

static void read_settings(void) {
  read_number("STUBGPU_DEVICES", &settings.present, MAX_DEVICES);
  read_number("STUBGPU_BYTES", &settings.bytes, SIZE_MAX >> 8);
  read_number("STUBGPU_TAKEN", &settings.taken, settings.bytes);
  const char *capability = getenv("STUBGPU_CAPABILITY");
  char rest;
  if (capability && sscanf(capability, "%d.%d%c", &settings.major, &settings.minor, &rest) != 2)
    refuse("STUBGPU_CAPABILITY");
  settings.devices = visible();
}

/* Not in a constructor: the library is preloaded into shells too, and only who uses CUDA may be refused. */
static int device_count(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_settings);
  return (int)settings.devices;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static __thread cudaError_t last_error;

static cudaError_t fail(cudaError_t error) { return last_error = error; }

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

/* What PyTorch calls for effects that no one can see here. By the assembler, since the prototypes differ. */
cudaError_t stubgpu_succeed(void) { return cudaSuccess; }
#define NOTHING_TO_DO(name) __asm__(".globl " #name "\n.type " #name ", @function\n.set " #name ", stubgpu_succeed\n")

/* ---- memory: who owns which addresses ---------------------------------------------------------------------------- */

enum kind { DEVICE, POOLED, MAPPED, PINNED, REGISTERED };

/* Bytes made by cuMemCreate, which live until released and no longer mapped. */
struct physical {
  size_t bytes;
  int device, holders;
};

struct block {
  char *start;
  size_t bytes;
  enum kind kind;
  int device;
  struct physical *physical; /* of a MAPPED block */
};

static void *blocks; /* a tree ordered by address */
static size_t used[MAX_DEVICES];
static struct { uint64_t used, most; } pools[MAX_DEVICES];
static __thread int current_device;

/* Ranges that overlap count as equal, so that a search for one byte finds the block that has it. */
static int compare(const void *left, const void *right) {
  const struct block *a = left, *b = right;
  return a->start + a->bytes <= b->start ? -1 : b->start + b->bytes <= a->start;
}

static struct block *find(const void *address, size_t bytes) {
  struct block key = {.start = (char *)address, .bytes = bytes}, **node = tfind(&key, &blocks, compare);
  return node ? *node : NULL;
}

static void insert(struct block block) {
  struct block *copy = malloc(sizeof *copy);
  *copy = block;
  tsearch(copy, &blocks, compare);
}

static void forget(struct block *block) {
  tdelete(block, &blocks, compare);
  free(block);
}

/* Pages with no reservation cost nothing until something is written to them, however large the device is. */
static void *pages(void *where, size_t bytes, int protection) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (where ? MAP_FIXED : 0);
  void *address = mmap(where, bytes, protection, flags, -1, 0);
  return address == MAP_FAILED ? NULL : address;
}

static size_t free_bytes(int device) { return settings.bytes - settings.taken - used[device]; }

static cudaError_t allocate(void **out, size_t bytes, enum kind kind) {
  LOCKED;
  *out = NULL;
  if (current_device >= device_count()) return fail(cudaErrorNoDevice);
  if (!bytes) return cudaSuccess;
  int device = current_device, on_device = kind != PINNED;
  if (on_device && bytes > free_bytes(device)) return fail(cudaErrorMemoryAllocation);
  if (!(*out = pages(NULL, bytes, PROT_READ | PROT_WRITE))) return fail(cudaErrorMemoryAllocation);
  insert((struct block){*out, bytes, kind, device, NULL});
  if (on_device) used[device] += bytes;
  if (kind == POOLED) {
    pools[device].used += bytes;
    if (pools[device].most < pools[device].used) pools[device].most = pools[device].used;
  }
  return cudaSuccess;
}

static cudaError_t deallocate(void *address, enum kind first, enum kind last) {
  LOCKED;
  if (!address) return cudaSuccess;
  struct block *block = find(address, 1);
  if (!block || block->start != address || block->kind < first || block->kind > last)
    return fail(cudaErrorInvalidValue);
  if (block->kind != REGISTERED) munmap(address, block->bytes);
  if (block->kind < PINNED) used[block->device] -= block->bytes;
  if (block->kind == POOLED) pools[block->device].used -= block->bytes;
  forget(block);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) { return allocate(out, bytes, DEVICE); }
cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream) { return allocate(out, bytes, POOLED); }
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) { return allocate(out, bytes, PINNED); }

cudaError_t cudaFree(void *address) { return deallocate(address, DEVICE, POOLED); }
cudaError_t cudaFreeAsync(void *address, cudaStream_t stream) { return deallocate(address, DEVICE, POOLED); }
cudaError_t cudaFreeHost(void *address) { return deallocate(address, PINNED, PINNED); }
cudaError_t cudaHostUnregister(void *address) { return deallocate(address, REGISTERED, REGISTERED); }

cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned flags) {
  LOCKED;
  if (!address || !bytes) return fail(cudaErrorInvalidValue);
  if (find(address, bytes)) return fail(cudaErrorHostMemoryAlreadyRegistered);
  insert((struct block){address, bytes, REGISTERED, current_device, NULL});
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
  LOCKED;
  if (current_device >= device_count()) return fail(cudaErrorNoDevice);
  *left = free_bytes(current_device);
  *total = settings.bytes;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *address) {
  LOCKED;
  memset(out, 0, sizeof *out);
  struct block *block = find(address, 1);
  if (!block) return cudaSuccess; /* ordinary host memory is no error */
  out->type = block->kind < PINNED ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  out->device = block->device;
  out->devicePointer = (void *)address;
  out->hostPointer = block->kind < PINNED ? NULL : (void *)address;
  return cudaSuccess;
}

/* The stream-ordered pool of a device keeps nothing back: it holds what is in use. */

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int device) {
  *out = (cudaMemPool_t)&pools[device];
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *out) {
  LOCKED;
  typeof(&pools[0]) of = (void *)pool;
  switch (attribute) {
    case cudaMemPoolAttrUsedMemCurrent:
    case cudaMemPoolAttrReservedMemCurrent: *(uint64_t *)out = of->used; break;
    case cudaMemPoolAttrUsedMemHigh:
    case cudaMemPoolAttrReservedMemHigh: *(uint64_t *)out = of->most; break;
    case cudaMemPoolAttrReleaseThreshold: *(uint64_t *)out = 0; break;
    default: *(int *)out = 1; /* may memory be reused in this way or that */
  }
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
  LOCKED;
  typeof(&pools[0]) of = (void *)pool;
  if (attribute == cudaMemPoolAttrUsedMemHigh || attribute == cudaMemPoolAttrReservedMemHigh) of->most = of->used;
  return cudaSuccess;
}

NOTHING_TO_DO(cudaMemPoolSetAccess);
NOTHING_TO_DO(cudaMemPoolTrimTo);
NOTHING_TO_DO(cudaDeviceSetGraphMemAttribute);

cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute, void *out) {
  *(uint64_t *)out = 0;
  return cudaSuccess;
}

/* ---- memory: virtual addresses, for expandable segments ---------------------------------------------------------- */

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *wanted,
                                       CUmemAllocationGranularity_flags flags) {
  *out = GRANULE;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags) {
  return (*out = (CUdeviceptr)pages(NULL, bytes, PROT_NONE)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return munmap((void *)address, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *wanted,
                     unsigned long long flags) {
  LOCKED;
  int device = wanted->location.id;
  if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  if (bytes > free_bytes(device)) return CUDA_ERROR_OUT_OF_MEMORY;
  struct physical *made = malloc(sizeof *made);
  *made = (struct physical){bytes, device, 1};
  used[device] += bytes;
  *out = (CUmemGenericAllocationHandle)made;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  LOCKED;
  struct physical *physical = (struct physical *)handle;
  if (--physical->holders) return CUDA_SUCCESS;
  used[physical->device] -= physical->bytes;
  free(physical);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  LOCKED;
  struct physical *physical = (struct physical *)handle;
  if (find((void *)address, bytes)) return CUDA_ERROR_ALREADY_MAPPED;
  if (!pages((void *)address, bytes, PROT_READ | PROT_WRITE)) return CUDA_ERROR_OUT_OF_MEMORY;
  physical->holders++;
  insert((struct block){(char *)address, bytes, MAPPED, physical->device, physical});
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  LOCKED;
  for (struct block *block; (block = find((void *)address, bytes)); forget(block))
    cuMemRelease((CUmemGenericAllocationHandle)block->physical);
  return pages((void *)address, bytes, PROT_NONE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

NOTHING_TO_DO(cuMemSetAccess);

/* ---- graphs, streams and events ---------------------------------------------------------------------------------- */

struct object {
  void *data;
  cudaHostFn_t destroy;
  unsigned references;
};

/* A capture, the graph that comes of it and what is instantiated from that are one thing with a count of holders. */
struct graph {
  int references, capturing;
  unsigned long long id;
  size_t nodes;
  struct kept { struct object *object; unsigned count; struct kept *next; } *kept;
};

struct stream {
  int priority;
  struct graph *capture;
};

struct event {
  struct timespec when;
  struct graph *capture;
};

cudaError_t cudaUserObjectCreate(cudaUserObject_t *out, void *data, cudaHostFn_t destroy, unsigned references,
                                 unsigned flags) {
  struct object *object = malloc(sizeof *object);
  *object = (struct object){data, destroy, references};
  *out = (cudaUserObject_t)object;
  return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t handle, unsigned count) {
  LOCKED;
  struct object *object = (struct object *)handle;
  if (object->references -= count) return cudaSuccess;
  object->destroy(object->data);
  free(object);
  return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t handle, unsigned count, unsigned flags) {
  LOCKED;
  struct graph *of = (struct graph *)graph;
  struct kept *kept = malloc(sizeof *kept);
  *kept = (struct kept){(struct object *)handle, count, of->kept};
  of->kept = kept;
  if (!(flags & cudaGraphUserObjectMove)) kept->object->references += count;
  return cudaSuccess;
}

static void drop(struct graph *graph) {
  if (!graph || --graph->references) return;
  for (struct kept *kept = graph->kept, *next; kept; kept = next) {
    next = kept->next;
    cudaUserObjectRelease((cudaUserObject_t)kept->object, kept->count);
    free(kept);
  }
  free(graph);
}

static struct graph *hold(struct graph *graph) {
  if (graph) graph->references++;
  return graph;
}

/* The default streams have no handle of their own: null, and small numbers for the legacy and the per-thread one. */
static struct stream *known(cudaStream_t stream) { return (uintptr_t)stream < 16 ? NULL : (struct stream *)stream; }

/* What is captured on a stream, if anything. A stream that had joined a capture leaves it here, once it is over. */
static struct graph *capture_on(cudaStream_t handle) {
  struct stream *stream = known(handle);
  if (!stream || !stream->capture) return NULL;
  if (stream->capture->capturing) return stream->capture;
  drop(stream->capture);
  return stream->capture = NULL;
}

/* Work put on a stream: a node of the graph when the stream is captured, and then nothing else happens. */
static int captured(cudaStream_t stream) {
  LOCKED;
  struct graph *graph = capture_on(stream);
  if (graph) graph->nodes++;
  return graph != NULL;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
  struct stream *stream = calloc(1, sizeof *stream);
  stream->priority = priority;
  *out = (cudaStream_t)stream;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithPriority(out, 0, 0); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
  return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  LOCKED;
  if (!known(stream)) return fail(cudaErrorInvalidResourceHandle);
  drop(known(stream)->capture);
  free(known(stream));
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *out) {
  *out = known(stream) ? known(stream)->priority : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
  LOCKED;
  static unsigned long long last_id;
  struct stream *stream = known(handle);
  if (!stream) return fail(cudaErrorStreamCaptureUnsupported);
  if (capture_on(handle)) return fail(cudaErrorIllegalState);
  stream->capture = calloc(1, sizeof *stream->capture);
  *stream->capture = (struct graph){.references = 1, .capturing = 1, .id = ++last_id};
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out) {
  LOCKED;
  struct graph *graph = capture_on(handle);
  *out = (cudaGraph_t)graph;
  if (!graph) return fail(cudaErrorIllegalState);
  graph->capturing = 0;
  known(handle)->capture = NULL; /* the caller holds it now */
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out) {
  LOCKED;
  *out = capture_on(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

#if CUDART_VERSION >= 13000
#define EDGES const cudaGraphEdgeData **edges,
#else
#define EDGES
#endif
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *out, const cudaGraphNode_t **nodes, EDGES size_t *count) {
  LOCKED;
  struct graph *graph = capture_on(stream);
  *status = graph ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (id) *id = graph ? graph->id : 0;
  if (out) *out = (cudaGraph_t)graph;
  if (nodes) *nodes = NULL;
  if (count) *count = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  static __thread enum cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  enum cudaStreamCaptureMode before = current;
  current = *mode;
  *mode = before;
  return cudaSuccess;
}

/* Nodes have no content, only a number. */
cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *out, size_t *count) {
  LOCKED;
  size_t nodes = ((struct graph *)handle)->nodes;
  for (size_t i = 0; out && i < nodes && i < *count; i++) out[i] = (cudaGraphNode_t)((char *)handle + 1 + i);
  if (!out || *count > nodes) *count = nodes;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
  LOCKED;
  *out = (cudaGraphExec_t)hold((struct graph *)graph);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(out, graph, flags);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  LOCKED;
  drop((struct graph *)graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy((cudaGraph_t)graph); }

NOTHING_TO_DO(cudaGraphLaunch);

cudaError_t cudaEventCreate(cudaEvent_t *out) {
  *out = calloc(1, sizeof(struct event));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) { return cudaEventCreate(out); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  LOCKED;
  drop(((struct event *)handle)->capture);
  free(handle);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  LOCKED;
  struct event *event = (struct event *)handle;
  drop(event->capture);
  event->capture = hold(capture_on(stream));
  clock_gettime(CLOCK_MONOTONIC, &event->when);
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return cudaEventRecord(event, stream);
}

/* A stream that waits for captured work is captured too, until the capture ends. */
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  LOCKED;
  struct graph *graph = ((struct event *)event)->capture;
  struct stream *stream = known(handle);
  if (stream && graph && graph->capturing && !capture_on(handle)) stream->capture = hold(graph);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *out, cudaEvent_t start, cudaEvent_t end) {
  struct timespec from = ((struct event *)start)->when, to = ((struct event *)end)->when;
  *out = (to.tv_sec - from.tv_sec) * 1e3f + (to.tv_nsec - from.tv_nsec) / 1e6f;
  return cudaSuccess;
}

/* All work is over when its call returns, so there is never anything to wait for. */
NOTHING_TO_DO(cudaDeviceSynchronize);
NOTHING_TO_DO(cudaEventQuery);
NOTHING_TO_DO(cudaEventSynchronize);
NOTHING_TO_DO(cudaStreamQuery);
NOTHING_TO_DO(cudaStreamSynchronize);

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  if (!captured(stream)) function(data);
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data, unsigned flags) {
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static __thread int computing; /* was a kernel launched since the last copy to a device? */

/* Pages that are equal already are left alone: a copy of memory that was never written stays free of cost. */
static void copy(char *to, const char *from, size_t bytes) {
  for (size_t done = 0, part; done < bytes; done += part) {
    part = bytes - done < PAGE ? bytes - done : PAGE;
    if (memcmp(to + done, from + done, part)) memmove(to + done, from + done, part);
  }
}

/* A number read back after a kernel is most often its result: a loss, or how many elements are not zero. What lies
 * there is left from an earlier tensor, and as a count it would be believed, whatever it is. So it reads as zero. */
static void transfer(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  int result = kind == cudaMemcpyDeviceToHost && bytes <= sizeof(double) && computing;
  if (kind == cudaMemcpyHostToDevice) computing = 0;
  if (result) memset(to, 0, bytes);
  else copy(to, from, bytes);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  transfer(to, from, bytes, kind);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  if (!captured(stream)) transfer(to, from, bytes, kind);
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
  if (captured(stream)) return cudaSuccess;
  for (size_t row = 0; row < height; row++)
    copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
  return cudaSuccess;
}

cudaError_t cudaMemset(void *address, int value, size_t bytes) {
  unsigned char filled[PAGE];
  memset(filled, value, sizeof filled);
  for (size_t done = 0, part; done < bytes; done += part) {
    part = bytes - done < PAGE ? bytes - done : PAGE;
    copy((char *)address + done, (char *)filled, part);
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *address, int value, size_t bytes, cudaStream_t stream) {
  return captured(stream) ? cudaSuccess : cudaMemset(address, value, bytes);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *out) {
  *out = device_count();
  return *out ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *out) {
  *out = current_device;
  return device_count() ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *out) { return *out = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *out) { return *out = CUDART_VERSION, cudaSuccess; }

/* The sizes of an A100: kernels are launched, though not run, only if they fit the device. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  memset(out, 0, sizeof *out);
  strcpy(out->name, "Stub GPU");
  out->uuid.bytes[15] = (char)(device + 1);
  out->pciBusID = device;
  out->totalGlobalMem = settings.bytes;
  out->major = settings.major;
  out->minor = settings.minor;
  out->multiProcessorCount = 108;
  out->warpSize = 32;
  out->maxThreadsPerBlock = 1024;
  out->maxThreadsPerMultiProcessor = 2048;
  out->maxBlocksPerMultiProcessor = 32;
  out->maxThreadsDim[0] = out->maxThreadsDim[1] = 1024;
  out->maxThreadsDim[2] = 64;
  out->maxGridSize[0] = INT32_MAX;
  out->maxGridSize[1] = out->maxGridSize[2] = UINT16_MAX;
  out->sharedMemPerBlock = 48 << 10;
  out->sharedMemPerBlockOptin = 163 << 10;
  out->sharedMemPerMultiprocessor = 164 << 10;
  out->regsPerBlock = out->regsPerMultiprocessor = 1 << 16;
  out->l2CacheSize = 40 << 20;
  out->textureAlignment = 512;
  out->unifiedAddressing = out->concurrentKernels = out->memoryPoolsSupported = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int device) {
  struct cudaDeviceProp of;
  cudaError_t error = cudaGetDeviceProperties(&of, device);
  if (error) return error;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *out = of.major; break;
    case cudaDevAttrComputeCapabilityMinor: *out = of.minor; break;
    case cudaDevAttrMultiProcessorCount: *out = of.multiProcessorCount; break;
    case cudaDevAttrWarpSize: *out = of.warpSize; break;
    case cudaDevAttrMaxThreadsPerBlock: *out = of.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *out = of.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *out = of.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrMaxBlockDimX: *out = of.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *out = of.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *out = of.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *out = of.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *out = of.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *out = of.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *out = of.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *out = of.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *out = of.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxRegistersPerBlock: *out = of.regsPerBlock; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *out = of.regsPerMultiprocessor; break;
    case cudaDevAttrL2CacheSize: *out = of.l2CacheSize; break;
    case cudaDevAttrTextureAlignment: *out = of.textureAlignment; break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrMemoryPoolsSupported: *out = 1; break;
    default: *out = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device) {
  snprintf(out, bytes, "0000:%02x:00.0", device);
  return cudaSuccess;
}

/* Without peer access tensors go from device to device by a copy, which is done here, and not by a kernel. */
cudaError_t cudaDeviceCanAccessPeer(int *out, int device, int peer) { return *out = 0, cudaSuccess; }

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* What nvcc puts around <<<grid, block, shared, stream>>>: the four wait here for the launch that follows. */
static __thread struct {
  dim3 grid, block;
  size_t shared;
  void *stream;
} configuration;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  configuration = (typeof(configuration)){grid, block, shared, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *(void **)stream = configuration.stream;
  return cudaSuccess;
}

void **__cudaRegisterFatBinary(void *binary) {
  static void *handle;
  return &handle;
}

char __cudaInitModule(void **handle) { return 1; }

NOTHING_TO_DO(__cudaRegisterFatBinaryEnd);
NOTHING_TO_DO(__cudaRegisterFunction);
NOTHING_TO_DO(__cudaRegisterVar);
NOTHING_TO_DO(__cudaUnregisterFatBinary);

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *function) {
  *out = (cudaKernel_t)function;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
  computing = 1;
  captured(stream);
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                        cudaStream_t stream) {
  return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *launch, const void *function, void **arguments) {
  return cudaLaunchKernel(function, launch->gridDim, launch->blockDim, arguments, 0, launch->stream);
}

NOTHING_TO_DO(cudaFuncSetAttribute);
NOTHING_TO_DO(cudaMemcpyToSymbol);
NOTHING_TO_DO(cudaProfilerStart);
NOTHING_TO_DO(cudaProfilerStop);

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function) {
  memset(out, 0, sizeof *out);
  out->maxThreadsPerBlock = 1024;
  out->numRegs = 32;
  out->ptxVersion = out->binaryVersion = 10 * settings.major + settings.minor;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *function, int threads, size_t shared) {
  return *out = 2, cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *function, int threads,
                                                                   size_t shared, unsigned flags) {
  return *out = 2, cudaSuccess;
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static CUresult not_supported(void) { return CUDA_ERROR_NOT_SUPPORTED; }

/* PyTorch asks for driver functions by name, all at once, and calls few of them: those are above and below. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
  void *function = dlsym(RTLD_DEFAULT, name);
  *out = function ? function : (void *)not_supported;
  if (status) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

#if CUDART_VERSION < 13000
cudaError_t cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status) {
  return cudaGetDriverEntryPointByVersion(name, out, CUDART_VERSION, flags, status);
}
#endif

CUresult cuGetErrorString(CUresult error, const char **out) {
  *out = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "not possible on the stub GPU";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *out, int number) {
  *out = number;
  return number >= 0 && number < device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device) {
  return (CUresult)cudaDeviceGetAttribute(out, (enum cudaDeviceAttr)attribute, device); /* the numbers are the same */
}

CUresult cuCtxGetCurrent(CUcontext *out) { return *out = (CUcontext)&settings, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) { return cuCtxGetCurrent(out); }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  return *flags = 0, *active = 1, CUDA_SUCCESS;
}
NOTHING_TO_DO(cuCtxSetCurrent);

/* Kernels that PyTorch compiles as it goes. */
CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
  return *out = (CUfunction)&settings, CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned i, unsigned j, unsigned k,
                        unsigned shared, CUstream stream, void **arguments, void **extra) {
  computing = 1;
  captured(stream);
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction function, int threads, size_t shared) {
  return *out = 2, CUDA_SUCCESS;
}
NOTHING_TO_DO(cuModuleLoadData);
NOTHING_TO_DO(cuModuleUnload);

/* NVML, which counts devices whether they are hidden or not. PyTorch calls all of these without looking for them. */

static int no_link(void) { return 3; /* not supported */ }

int nvmlInit(void) { return device_count() < 0; /* which reads the settings */ }
int nvmlInit_v2(void) { return nvmlInit(); }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *out) { return *out = settings.present, 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out) { return *out = &settings, 0; }
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *processes) { return *count = 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { return *out = CUDART_VERSION, 0; }
int nvmlDeviceGetGpuFabricInfoV(void *device, void *state) { return 0; /* as the caller filled it: no fabric */ }
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return no_link(); }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return no_link(); }

/* ---- libraries: what they return must be usable, what they compute is not there ---------------------------------- */

int cublasCreate_v2(void **out) { return *out = &settings, 0; }
int cublasGetMathMode(void *handle, int *out) { return *out = 0; }
int cublasGetPointerMode_v2(void *handle, int *out) { return *out = 0; }

/* One algorithm that needs no workspace; a result is 96 bytes, and all zero it says success. */
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference,
                                   int wanted, void *results, int *found) {
  memset(results, 0, 96);
  *found = 1;
  return 0;
}

int cufftCreate(int *out) { return *out = 0; }
int cufftXtMakePlanMany(int plan, int rank, long long *n, long long *inembed, long long istride, long long idist,
                        int intype, long long *onembed, long long ostride, long long odist, int outtype,
                        long long batch, size_t *workspace, int type) {
  *workspace = 0;
  return 0;
}

/* cuDNN's plans are out of reach, so PyTorch is told that its user turned cuDNN off, and takes its own kernels for
 * convolutions, batch norms and recurrent layers. This is at::Context::userEnabledCuDNN() const. */
char _ZNK2at7Context16userEnabledCuDNNEv(void *context) { return 0; }
