// Closes five defects of Triton 2.51, the newest that can be embedded; loaded before its libraries (LD_PRELOAD).
//
// Division by zero. A caller may ask for the `classification` of an output. For one of type BYTES the gRPC front end divides
// its size by that of an element, which is 0: SIGFPE, whatever the model, and no backend sees that parameter. Newer releases
// check it. Here the size is 1, so that the front end reaches its own error for the type. That error would still end a
// stream with an error response, which together with `triton_grpc_error` brings 2.51 down, too: so it is none, and the
// classes are empty.
//
// Memory by declaration. For an input of numbers in JSON the HTTP front end allocates what the declared shape asks for
// before it looks at the data, and no backend has seen the request yet: a few bytes take all memory, or end Triton by
// std::bad_alloc. The models here take BYTES only, so every other type is refused when the input is declared.
//
// Memory by compression. A message may be compressed, and what it inflates to has no bound: a megabyte takes a gigabyte.
// Here inflating ends with an error where no request can be larger.
//
// Memory by length. A message over gRPC may have 2 GiB, which are copied while the tokens of others wait. A connection that
// announces more than any request can have is ended (message_limit.hpp).
//
// Two kinds of models in one stream. The gRPC front end writes the responses of decoupled models in one way and those of
// the others, which include models that it does not know, in another; both at once in one stream bring it down. So it is
// told that every model is decoupled, and writes all of them in the same way. Where it refuses decoupled models, in unary
// calls and over HTTP, it gets no error for those that are not. A version that is no number would be an error before the
// front end asks about the model: it becomes one when the version is used.
#include <dlfcn.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "message_limit.hpp"

// As zlib's z_stream begins.
struct Inflation {
  const unsigned char* next_in;
  unsigned avail_in;
  unsigned long total_in;
  unsigned char* next_out;
  unsigned avail_out;
  unsigned long total_out;
};

struct TRITONSERVER_Error;
struct TRITONSERVER_Message;
struct TRITONSERVER_InferenceRequest;
struct TRITONSERVER_Server;

enum TRITONSERVER_DataType : int {
  TRITONSERVER_TYPE_INVALID,
  TRITONSERVER_TYPE_BOOL,
  TRITONSERVER_TYPE_UINT8,
  TRITONSERVER_TYPE_UINT16,
  TRITONSERVER_TYPE_UINT32,
  TRITONSERVER_TYPE_UINT64,
  TRITONSERVER_TYPE_INT8,
  TRITONSERVER_TYPE_INT16,
  TRITONSERVER_TYPE_INT32,
  TRITONSERVER_TYPE_INT64,
  TRITONSERVER_TYPE_FP16,
  TRITONSERVER_TYPE_FP32,
  TRITONSERVER_TYPE_FP64,
  TRITONSERVER_TYPE_BYTES,
  TRITONSERVER_TYPE_BF16,
};

using DataTypeByteSize = std::uint32_t (*)(TRITONSERVER_DataType type);
using AddInput = TRITONSERVER_Error* (*)(TRITONSERVER_InferenceRequest* request, const char* name,
                                         TRITONSERVER_DataType type, const std::int64_t* shape, std::uint64_t dimensions);
using ErrorNew = TRITONSERVER_Error* (*)(int code, const char* message);
using RequestNew = TRITONSERVER_Error* (*)(TRITONSERVER_InferenceRequest** request, TRITONSERVER_Server* server,
                                           const char* model, std::int64_t version);
using ErrorDelete = void (*)(TRITONSERVER_Error* error);
using IsReady = TRITONSERVER_Error* (*)(TRITONSERVER_Server* server, const char* model, std::int64_t version, bool* ready);
using Describe = TRITONSERVER_Error* (*)(TRITONSERVER_Server* server, const char* model, std::int64_t version,
                                         TRITONSERVER_Message** description);
using Config = TRITONSERVER_Error* (*)(TRITONSERVER_Server* server, const char* model, std::int64_t version,
                                       std::uint32_t config_version, TRITONSERVER_Message** config);
using TransactionProperties = TRITONSERVER_Error* (*)(TRITONSERVER_Server* server, const char* model, std::int64_t version,
                                                      std::uint32_t* flags, void** unused);
using Inflate = int (*)(Inflation* stream, int flush);
using Accept = int (*)(int socket, sockaddr* address, socklen_t* length, int flags);
using Receive = ssize_t (*)(int socket, msghdr* message, int flags);

#define EXPORTED __attribute__((visibility("default")))

extern "C" EXPORTED TRITONSERVER_Error* TRITONSERVER_ErrorNew(int code, const char* message);

namespace {

constexpr int kInvalidArgument = 3;
constexpr int kDataError = -3;                          // Z_DATA_ERROR
constexpr std::uint32_t kMostMessageBytes = 16U << 20;  // twice dragoman.wire.Limits.max_request_bytes
constexpr unsigned long kMostInflatedBytes = kMostMessageBytes;
constexpr int kMostDescriptors = 1 << 16;
constexpr std::uint32_t kDecoupled = 2;  // TRITONSERVER_TXN_DECOUPLED

// Of the request that this thread reads. Is the model decoupled? Is its version no number?
thread_local bool is_decoupled = false, has_bad_version = false;

// The same function, of the library that is behind this one.
template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

// By descriptor. A connection's begins when it is accepted, before gRPC hands it to the thread that reads from it, and is
// read by one thread at a time: gRPC's own locks order them.
dragoman::MessageLimit message_limits[kMostDescriptors];

bool has_limit(int descriptor) { return descriptor >= 0 && descriptor < kMostDescriptors; }

// Whether what was received from a connection keeps to its limit.
bool keeps_to_limit(int connection, const msghdr& message, std::size_t count) {
  bool keeps = true;
  for (std::size_t at = 0; at < message.msg_iovlen && count > 0; ++at) {
    const std::size_t used = std::min(count, message.msg_iov[at].iov_len);
    keeps = message_limits[connection].feed(static_cast<const unsigned char*>(message.msg_iov[at].iov_base), used);
    count -= used;
  }
  return keeps;
}

bool begins(const char* message, const char* with) { return std::strncmp(message, with, std::strlen(with)) == 0; }

// The error that was kept back, once; nullptr when there was none.
TRITONSERVER_Error* version_error() {
  if (!has_bad_version) return nullptr;
  has_bad_version = false;
  return TRITONSERVER_ErrorNew(kInvalidArgument, "the version of a model must be a number above 0");
}

}  // namespace

extern "C" {

EXPORTED int inflate(Inflation* stream, int flush) {
  static const auto go_on = next<Inflate>("inflate");
  return stream->total_out > kMostInflatedBytes ? kDataError : go_on(stream, flush);
}

EXPORTED int accept4(int socket, sockaddr* address, socklen_t* length, int flags) {
  static const auto accept_next = next<Accept>("accept4");
  const int accepted = accept_next(socket, address, length, flags);
  if (has_limit(accepted)) message_limits[accepted].begin(kMostMessageBytes);
  return accepted;
}

EXPORTED ssize_t recvmsg(int socket, msghdr* message, int flags) {
  static const auto receive = next<Receive>("recvmsg");
  const ssize_t count = receive(socket, message, flags);
  if (count <= 0 || (flags & (MSG_PEEK | MSG_ERRQUEUE)) != 0 || !has_limit(socket)) return count;
  if (keeps_to_limit(socket, *message, static_cast<std::size_t>(count))) return count;
  errno = ECONNRESET;
  return -1;
}

EXPORTED std::uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType type) {
  if (type == TRITONSERVER_TYPE_BYTES) return 1;
  return next<DataTypeByteSize>("TRITONSERVER_DataTypeByteSize")(type);
}

EXPORTED TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest* request, const char* name,
                                                                   TRITONSERVER_DataType type, const std::int64_t* shape,
                                                                   std::uint64_t dimensions) {
  if (type != TRITONSERVER_TYPE_BYTES)
    return TRITONSERVER_ErrorNew(kInvalidArgument, "every input of these models has the datatype BYTES");
  static const auto add = next<AddInput>("TRITONSERVER_InferenceRequestAddInput");
  return add(request, name, type, shape, dimensions);
}

EXPORTED TRITONSERVER_Error* TRITONSERVER_ServerModelTransactionProperties(TRITONSERVER_Server* server, const char* model,
                                                                           std::int64_t version, std::uint32_t* flags,
                                                                           void** unused) {
  static const auto ask = next<TransactionProperties>("TRITONSERVER_ServerModelTransactionProperties");
  static const auto forget = next<ErrorDelete>("TRITONSERVER_ErrorDelete");
  is_decoupled = false;
  if (!has_bad_version) {
    TRITONSERVER_Error* const unknown = ask(server, model, version, flags, unused);
    is_decoupled = unknown == nullptr && (*flags & kDecoupled) != 0;
    if (unknown != nullptr) forget(unknown);  // the request that is made next is refused for the same reason
  }
  *flags = kDecoupled;
  return nullptr;
}

EXPORTED TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest** request,
                                                              TRITONSERVER_Server* server, const char* model,
                                                              std::int64_t version) {
  static const auto create = next<RequestNew>("TRITONSERVER_InferenceRequestNew");
  TRITONSERVER_Error* const error = version_error();
  return error != nullptr ? error : create(request, server, model, version);
}

EXPORTED TRITONSERVER_Error* TRITONSERVER_ServerModelIsReady(TRITONSERVER_Server* server, const char* model,
                                                             std::int64_t version, bool* ready) {
  static const auto ask = next<IsReady>("TRITONSERVER_ServerModelIsReady");
  TRITONSERVER_Error* const error = version_error();
  return error != nullptr ? error : ask(server, model, version, ready);
}

EXPORTED TRITONSERVER_Error* TRITONSERVER_ServerModelMetadata(TRITONSERVER_Server* server, const char* model,
                                                              std::int64_t version, TRITONSERVER_Message** description) {
  static const auto describe = next<Describe>("TRITONSERVER_ServerModelMetadata");
  TRITONSERVER_Error* const error = version_error();
  return error != nullptr ? error : describe(server, model, version, description);
}

EXPORTED TRITONSERVER_Error* TRITONSERVER_ServerModelStatistics(TRITONSERVER_Server* server, const char* model,
                                                                std::int64_t version, TRITONSERVER_Message** description) {
  static const auto describe = next<Describe>("TRITONSERVER_ServerModelStatistics");
  TRITONSERVER_Error* const error = version_error();
  return error != nullptr ? error : describe(server, model, version, description);
}

EXPORTED TRITONSERVER_Error* TRITONSERVER_ServerModelConfig(TRITONSERVER_Server* server, const char* model,
                                                            std::int64_t version, std::uint32_t config_version,
                                                            TRITONSERVER_Message** config) {
  static const auto describe = next<Config>("TRITONSERVER_ServerModelConfig");
  TRITONSERVER_Error* const error = version_error();
  return error != nullptr ? error : describe(server, model, version, config_version, config);
}

// Also what is not an error here begins as one.
EXPORTED TRITONSERVER_Error* TRITONSERVER_ErrorNew(int code, const char* message) {
  static const auto create = next<ErrorNew>("TRITONSERVER_ErrorNew");
  if (begins(message, "class result not available for output")) return nullptr;
  const bool is_about_decoupled = begins(message, "ModelInfer RPC doesn't support models with decoupled") ||
                                  begins(message, "HTTP end point doesn't support models with decoupled");
  if (is_about_decoupled && !is_decoupled) return nullptr;
  if (begins(message, "failed to get model version from") || begins(message, "invalid model version specified")) {
    has_bad_version = true;
    return nullptr;
  }
  return create(code, message);
}

}  // extern "C"
