#define maximum(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
static inline int64_t truncate(double x, int bits) {
  double limit = bits == 32 ? 2147483648.0 : 9223372036854775808.0;
  double low = bits == 32 ? -limit - 1.0 : -limit;
  int inside = (bits == 32 ? x > low : x >= low) && x < limit;
  return inside ? (int64_t)x : bits == 32 ? INT32_MIN : INT64_MIN;
}
static inline int64_t shr(int64_t a, uint64_t n, int width) {
  return n < (uint64_t)width ? a >> n : a < 0 ? -1 : 0;
}
static inline int64_t shl(int64_t a, uint64_t n, int width) {
  return n < (uint64_t)width ? (int64_t)((uint64_t)a << n) : 0;
}
#define bits(to, from, x) ((union { from a; to b; }){.a = (x)}.b)

void r_3_4_4_4(const float *data0, float *data1) {
  for (int64_t i1 = 0; i1 < 3; i1++) {
    int64_t v2 = (i1 * 4);
    float acc3 = -INFINITY;
    for (int64_t i4 = 0; i4 < 4; i4++) {
      acc3 = maximum(acc3, data0[v2 + i4]);
    }
    float acc5 = 0.0f;
    for (int64_t i6 = 0; i6 < 4; i6++) {
      float v7 = (data0[v2 + i6] - acc3);
      bool v8 = (v7 < -0x1.9fe3680000000p+6f);
      float v9 = ((89.0f < v7) ? 89.0f : (v8 ? 0.0f : v7));
      float v10 = rintf((v9 * 0x1.7154760000000p+0f));
      float v11 = fmaf(v10, -0x1.7f7d1c0000000p-20f, fmaf(v10, -0x1.62e4000000000p-1f, v9));
      float v12 = fmaf(fmaf(fmaf(0x1.6940000000000p-10f, v11, 0x1.125edc0000000p-7f), v11, 0x1.555b5a0000000p-5f), v11, 0x1.5554500000000p-3f);
      int32_t v13 = (int32_t)truncate(v10, 32);
      int32_t v14 = (int32_t)shr(v13, 1, 32);
      float v15 = (fmaf(fmaf(fmaf(v12, v11, 0x1.fffff60000000p-2f), v11, 1.0f), v11, 1.0f) * bits(float, int32_t, (int32_t)shl((v14 + 127), 23, 32)));
      float v16 = ((v7 != v7) ? v7 : (v8 ? 0.0f : (v15 * bits(float, int32_t, (int32_t)shl(((v13 - v14) + 127), 23, 32)))));
      acc5 = (acc5 + v16);
    }
    for (int64_t i17 = 0; i17 < 4; i17++) {
      int64_t v18 = (v2 + i17);
      float v19 = (data0[v18] - acc3);
      bool v20 = (v19 < -0x1.9fe3680000000p+6f);
      float v21 = ((89.0f < v19) ? 89.0f : (v20 ? 0.0f : v19));
      float v22 = rintf((v21 * 0x1.7154760000000p+0f));
      float v23 = fmaf(v22, -0x1.7f7d1c0000000p-20f, fmaf(v22, -0x1.62e4000000000p-1f, v21));
      float v24 = fmaf(fmaf(fmaf(0x1.6940000000000p-10f, v23, 0x1.125edc0000000p-7f), v23, 0x1.555b5a0000000p-5f), v23, 0x1.5554500000000p-3f);
      int32_t v25 = (int32_t)truncate(v22, 32);
      int32_t v26 = (int32_t)shr(v25, 1, 32);
      float v27 = (fmaf(fmaf(fmaf(v24, v23, 0x1.fffff60000000p-2f), v23, 1.0f), v23, 1.0f) * bits(float, int32_t, (int32_t)shl((v26 + 127), 23, 32)));
      float v28 = ((v19 != v19) ? v19 : (v20 ? 0.0f : (v27 * bits(float, int32_t, (int32_t)shl(((v25 - v26) + 127), 23, 32)))));
      data1[v18] = v28 / acc5;
    }
  }
}
