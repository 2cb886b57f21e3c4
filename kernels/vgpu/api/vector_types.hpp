// dim3, uint3 and the short vectors with their make_ functions; alignment as on the device, so that
// a misaligned vector load is one here too (UBSan names it).
#pragma once

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#define VGPU_VECTORS(NAME, T, ALIGN2, ALIGN4)                \
  struct alignas(ALIGN2) NAME##2 {                           \
    T x, y;                                                  \
  };                                                         \
  struct alignas(ALIGN4) NAME##4 {                           \
    T x, y, z, w;                                            \
  };                                                         \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; } \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

VGPU_VECTORS(char, signed char, 2, 4)
VGPU_VECTORS(uchar, unsigned char, 2, 4)
VGPU_VECTORS(short, short, 4, 8)
VGPU_VECTORS(ushort, unsigned short, 4, 8)
VGPU_VECTORS(int, int, 8, 16)
VGPU_VECTORS(uint, unsigned, 8, 16)
VGPU_VECTORS(longlong, long long, 16, 16)
VGPU_VECTORS(ulonglong, unsigned long long, 16, 16)
VGPU_VECTORS(float, float, 8, 16)
VGPU_VECTORS(double, double, 16, 16)
#undef VGPU_VECTORS

struct int3 {
  int x, y, z;
};
struct float3 {
  float x, y, z;
};
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
