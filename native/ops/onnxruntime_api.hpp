// The part of ONNX Runtime's C interface that a custom operator needs, by the names of its documentation.
//
// ONNX Runtime is installed as a Python package, which has no headers. Its interface is two structures of function pointers:
// OrtApi, which it gives us, and OrtCustomOp, which we give it. New members are only ever added at their ends, so the
// offsets below hold for version 18 of the interface (ONNX Runtime 1.18) and every later one. Members that are not used here
// are reserved places; the offsets of those that are used are checked when this is compiled.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dragoman {

constexpr std::uint32_t kOrtApiVersion = 18;

struct OrtStatus;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtShapeInferContext;
struct OrtOpAttr;
struct OrtValue;
struct OrtTensorTypeAndShapeInfo;
struct OrtCustomOp;
struct OrtCustomOpDomain;
struct OrtSessionOptions;

enum class OrtErrorCode : int { kFail = 1, kInvalidArgument = 2 };

// ONNXTensorElementDataType
enum class ElementType : int { kFloat = 1, kInt8 = 3, kInt32 = 6, kInt64 = 7 };

// OrtCustomOpInputOutputCharacteristic
enum class Presence : int { kRequired = 0, kOptional = 1 };

// OrtOpAttrType
enum class AttributeType : int { kInt = 1 };

struct OrtApi {
  OrtStatus* (*CreateStatus)(OrtErrorCode code, const char* message);
  void* reserved_1;
  const char* (*GetErrorMessage)(const OrtStatus* status);
  void* reserved_3[23];
  OrtStatus* (*CreateCustomOpDomain)(const char* name, OrtCustomOpDomain** domain);
  OrtStatus* (*CustomOpDomain_Add)(OrtCustomOpDomain* domain, const OrtCustomOp* op);
  OrtStatus* (*AddCustomOpDomain)(OrtSessionOptions* options, OrtCustomOpDomain* domain);
  void* reserved_29[22];
  OrtStatus* (*GetTensorMutableData)(OrtValue* value, void** data);
  void* reserved_52[5];
  OrtStatus* (*CreateTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo** info);
  OrtStatus* (*SetTensorElementType)(OrtTensorTypeAndShapeInfo* info, ElementType type);
  OrtStatus* (*SetDimensions)(OrtTensorTypeAndShapeInfo* info, const std::int64_t* sizes, std::size_t count);
  void* reserved_60;
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo* info, std::size_t* count);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo* info, std::int64_t* sizes, std::size_t count);
  OrtStatus* (*GetSymbolicDimensions)(const OrtTensorTypeAndShapeInfo* info, const char** names, std::size_t count);
  void* reserved_64;
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue* value, OrtTensorTypeAndShapeInfo** info);
  void* reserved_66[19];
  OrtStatus* (*KernelInfoGetAttribute_float)(const OrtKernelInfo* info, const char* name, float* value);
  OrtStatus* (*KernelInfoGetAttribute_int64)(const OrtKernelInfo* info, const char* name, std::int64_t* value);
  void* reserved_87[3];
  OrtStatus* (*KernelContext_GetInput)(const OrtKernelContext* context, std::size_t index, const OrtValue** value);
  OrtStatus* (*KernelContext_GetOutput)(OrtKernelContext* context, std::size_t index, const std::int64_t* sizes,
                                        std::size_t count, OrtValue** value);
  void* reserved_92;
  void (*ReleaseStatus)(OrtStatus* status);
  void* reserved_94[5];
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo* info);
  void* reserved_100;
  void (*ReleaseCustomOpDomain)(OrtCustomOpDomain* domain);
  void* reserved_102[165];
  OrtStatus* (*ShapeInferContext_GetInputCount)(const OrtShapeInferContext* context, std::size_t* count);
  OrtStatus* (*ShapeInferContext_GetInputTypeShape)(const OrtShapeInferContext* context, std::size_t index,
                                                    OrtTensorTypeAndShapeInfo** info);
  OrtStatus* (*ShapeInferContext_GetAttribute)(const OrtShapeInferContext* context, const char* name,
                                               const OrtOpAttr** attribute);
  OrtStatus* (*ShapeInferContext_SetOutputTypeShape)(const OrtShapeInferContext* context, std::size_t index,
                                                     const OrtTensorTypeAndShapeInfo* info);
  OrtStatus* (*SetSymbolicDimensions)(OrtTensorTypeAndShapeInfo* info, const char** names, std::size_t count);
  OrtStatus* (*ReadOpAttr)(const OrtOpAttr* attribute, AttributeType type, void* data, std::size_t bytes,
                           std::size_t* written);
};

#define DRAGOMAN_MEMBER_AT(member, place) \
  static_assert(offsetof(OrtApi, member) == (place) * sizeof(void*), #member " is at another place in OrtApi")
DRAGOMAN_MEMBER_AT(GetErrorMessage, 2);
DRAGOMAN_MEMBER_AT(CreateCustomOpDomain, 26);
DRAGOMAN_MEMBER_AT(GetTensorMutableData, 51);
DRAGOMAN_MEMBER_AT(CreateTensorTypeAndShapeInfo, 57);
DRAGOMAN_MEMBER_AT(GetDimensionsCount, 61);
DRAGOMAN_MEMBER_AT(GetTensorTypeAndShape, 65);
DRAGOMAN_MEMBER_AT(KernelInfoGetAttribute_float, 85);
DRAGOMAN_MEMBER_AT(KernelContext_GetInput, 90);
DRAGOMAN_MEMBER_AT(ReleaseStatus, 93);
DRAGOMAN_MEMBER_AT(ReleaseTensorTypeAndShapeInfo, 99);
DRAGOMAN_MEMBER_AT(ReleaseCustomOpDomain, 101);
DRAGOMAN_MEMBER_AT(ShapeInferContext_GetInputCount, 267);
DRAGOMAN_MEMBER_AT(ReadOpAttr, 272);
#undef DRAGOMAN_MEMBER_AT

struct OrtApiBase {
  const OrtApi* (*GetApi)(std::uint32_t version);  // null where ONNX Runtime is older than that
  const char* (*GetVersionString)();
};

// An operator as ONNX Runtime sees it.
struct OrtCustomOp {
  std::uint32_t version = kOrtApiVersion;
  void* (*CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*) = nullptr;
  const char* (*GetName)(const OrtCustomOp*) = nullptr;
  const char* (*GetExecutionProviderType)(const OrtCustomOp*) = nullptr;
  ElementType (*GetInputType)(const OrtCustomOp*, std::size_t index) = nullptr;
  std::size_t (*GetInputTypeCount)(const OrtCustomOp*) = nullptr;
  ElementType (*GetOutputType)(const OrtCustomOp*, std::size_t index) = nullptr;
  std::size_t (*GetOutputTypeCount)(const OrtCustomOp*) = nullptr;
  void (*KernelCompute)(void* kernel, OrtKernelContext*) = nullptr;
  void (*KernelDestroy)(void* kernel) = nullptr;
  Presence (*GetInputCharacteristic)(const OrtCustomOp*, std::size_t index) = nullptr;
  Presence (*GetOutputCharacteristic)(const OrtCustomOp*, std::size_t index) = nullptr;
  int (*GetInputMemoryType)(const OrtCustomOp*, std::size_t index) = nullptr;
  int (*GetVariadicInputMinArity)(const OrtCustomOp*) = nullptr;
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*) = nullptr;
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*) = nullptr;
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*) = nullptr;
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel) = nullptr;
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext*) = nullptr;
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp*, OrtShapeInferContext*) = nullptr;
  int (*GetStartVersion)(const OrtCustomOp*) = nullptr;
  int (*GetEndVersion)(const OrtCustomOp*) = nullptr;
  // Inputs whose memory an output may use, or always uses: two arrays, and how many there are.
  std::size_t (*GetMayInplace)(int** inputs, int** outputs) = nullptr;
  void (*ReleaseMayInplace)(int* inputs, int* outputs) = nullptr;
  std::size_t (*GetAliasMap)(int** inputs, int** outputs) = nullptr;
  void (*ReleaseAliasMap)(int* inputs, int* outputs) = nullptr;
};

}  // namespace dragoman
