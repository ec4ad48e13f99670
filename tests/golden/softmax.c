#define maximum(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define minimum(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))

void r_3_200_200_200(const float *data0, float *data1) {
  for (int64_t i1 = 0; i1 < 3; i1++) {
    int64_t v2 = (i1 * 200);
    float acc3 = -INFINITY;
    for (int64_t i4 = 0; i4 < 200; i4++) {
      acc3 = maximum(acc3, data0[v2 + i4]);
    }
    float acc5 = 0.0f;
    for (int64_t i6 = 0; i6 < 200; i6 += 64) {
      int64_t v7 = minimum((i6 + 64), 200);
      float acc8 = 0.0f;
      for (int64_t i9 = i6; i9 < v7; i9 += 8) {
        float acc10 = 0.0f;
        for (int64_t i11 = i9; i11 < minimum((i9 + 8), v7); i11++) {
          float v12 = (data0[v2 + i11] - acc3);
          bool v13 = (v12 < -104.0f);
          float v14 = (v13 ? 0.0f : ((89.0f < v12) ? 89.0f : v12));
          float v15 = (fmaf(v14, 0x1.7154760000000p+0f, 12582912.0f) - 12582912.0f);
          float v16 = fmaf(v15, -0x1.7f7d1c0000000p-20f, fmaf(v15, -0x1.62e4000000000p-1f, v14));
          float v17 = fmaf(fmaf(fmaf(0x1.6940000000000p-10f, v16, 0x1.125edc0000000p-7f), v16, 0x1.555b5a0000000p-5f), v16, 0x1.5554500000000p-3f);
          float v18 = (v13 ? 0.0f : ldexpf(fmaf(fmaf(fmaf(v17, v16, 0x1.fffff60000000p-2f), v16, 1.0f), v16, 1.0f), (int)v15));
          acc10 = (acc10 + v18);
        }
        acc8 = (acc8 + acc10);
      }
      acc5 = (acc5 + acc8);
    }
    for (int64_t i19 = 0; i19 < 200; i19++) {
      int64_t v20 = (v2 + i19);
      float v21 = (data0[v20] - acc3);
      bool v22 = (v21 < -104.0f);
      float v23 = (v22 ? 0.0f : ((89.0f < v21) ? 89.0f : v21));
      float v24 = (fmaf(v23, 0x1.7154760000000p+0f, 12582912.0f) - 12582912.0f);
      float v25 = fmaf(v24, -0x1.7f7d1c0000000p-20f, fmaf(v24, -0x1.62e4000000000p-1f, v23));
      float v26 = fmaf(fmaf(fmaf(0x1.6940000000000p-10f, v25, 0x1.125edc0000000p-7f), v25, 0x1.555b5a0000000p-5f), v25, 0x1.5554500000000p-3f);
      float v27 = (v22 ? 0.0f : ldexpf(fmaf(fmaf(fmaf(v26, v25, 0x1.fffff60000000p-2f), v25, 1.0f), v25, 1.0f), (int)v24));
      data1[v20] = v27 / acc5;
    }
  }
}
