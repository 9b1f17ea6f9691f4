// Closes two defects of Triton 2.51, the newest that can be embedded; loaded before its libraries (LD_PRELOAD).
//
// Division by zero. A caller may ask for the `classification` of an output. For one of type BYTES the gRPC front end divides its size by
// that of an element, which is 0: SIGFPE, whatever the model, and no backend sees that parameter. Newer releases check
// it. Here the size is 1, so that the front end reaches its own error for the type. That error would still end a stream
// with an error response, which together with `triton_grpc_error` brings 2.51 down, too: so it is none, and the classes
// are empty.
//
// Memory by declaration. For an input of numbers in JSON the HTTP front end allocates what the declared shape asks for
// before it looks at the data, and no backend has seen the request yet: a few bytes take all memory, or end Triton by
// std::bad_alloc. The models here take BYTES only, so every other type is refused when the input is declared.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>

extern "C" {

struct TRITONSERVER_Error;
struct TRITONSERVER_InferenceRequest;

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
                                         TRITONSERVER_DataType type, const std::int64_t* shape,
                                         std::uint64_t dimensions);
using ErrorNew = TRITONSERVER_Error* (*)(int code, const char* message);

#define EXPORTED __attribute__((visibility("default")))

EXPORTED std::uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType type) {
  if (type == TRITONSERVER_TYPE_BYTES) return 1;
  return reinterpret_cast<DataTypeByteSize>(::dlsym(RTLD_NEXT, "TRITONSERVER_DataTypeByteSize"))(type);
}

EXPORTED TRITONSERVER_Error* TRITONSERVER_ErrorNew(int code, const char* message);

EXPORTED TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest* request,
                                                                   const char* name, TRITONSERVER_DataType type,
                                                                   const std::int64_t* shape,
                                                                   std::uint64_t dimensions) {
  constexpr int kInvalidArgument = 3;
  if (type != TRITONSERVER_TYPE_BYTES)
    return TRITONSERVER_ErrorNew(kInvalidArgument, "every input of these models has the datatype BYTES");
  static const auto next = reinterpret_cast<AddInput>(::dlsym(RTLD_NEXT, "TRITONSERVER_InferenceRequestAddInput"));
  return next(request, name, type, shape, dimensions);
}

EXPORTED TRITONSERVER_Error* TRITONSERVER_ErrorNew(int code, const char* message) {
  constexpr const char* kUnclassifiable = "class result not available for output";
  if (std::strncmp(message, kUnclassifiable, std::strlen(kUnclassifiable)) == 0) return nullptr;
  return reinterpret_cast<ErrorNew>(::dlsym(RTLD_NEXT, "TRITONSERVER_ErrorNew"))(code, message);
}

}  // extern "C"
