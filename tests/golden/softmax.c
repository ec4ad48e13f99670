#define maximum(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))

void r_3_200_200_200(const float *data0, float *data1) {
  for (int64_t i1 = 0; i1 < 3; i1++) {
    int64_t v2 = (i1 * 200);
    float acc3 = -INFINITY;
    for (int64_t i4 = 0; i4 < 200; i4++) {
      acc3 = maximum(acc3, data0[v2 + i4]);
    }
    float acc5 = 0.0f;
    for (int64_t i6 = 0; i6 < 200; i6++) {
      float v7 = (data0[v2 + i6] - acc3);
      bool v8 = (v7 < -104.0f);
      float v9 = (v8 ? 0.0f : ((89.0f < v7) ? 89.0f : v7));
      float v10 = (fmaf(v9, 0x1.7154760000000p+0f, 12582912.0f) - 12582912.0f);
      float v11 = fmaf(v10, -0x1.7f7d1c0000000p-20f, fmaf(v10, -0x1.62e4000000000p-1f, v9));
      float v12 = fmaf(fmaf(fmaf(0x1.6940000000000p-10f, v11, 0x1.125edc0000000p-7f), v11, 0x1.555b5a0000000p-5f), v11, 0x1.5554500000000p-3f);
      float v13 = (v8 ? 0.0f : ldexpf(fmaf(fmaf(fmaf(v12, v11, 0x1.fffff60000000p-2f), v11, 1.0f), v11, 1.0f), (int)v10));
      acc5 = (acc5 + v13);
    }
    for (int64_t i14 = 0; i14 < 200; i14++) {
      int64_t v15 = (v2 + i14);
      float v16 = (data0[v15] - acc3);
      bool v17 = (v16 < -104.0f);
      float v18 = (v17 ? 0.0f : ((89.0f < v16) ? 89.0f : v16));
      float v19 = (fmaf(v18, 0x1.7154760000000p+0f, 12582912.0f) - 12582912.0f);
      float v20 = fmaf(v19, -0x1.7f7d1c0000000p-20f, fmaf(v19, -0x1.62e4000000000p-1f, v18));
      float v21 = fmaf(fmaf(fmaf(0x1.6940000000000p-10f, v20, 0x1.125edc0000000p-7f), v20, 0x1.555b5a0000000p-5f), v20, 0x1.5554500000000p-3f);
      float v22 = (v17 ? 0.0f : ldexpf(fmaf(fmaf(fmaf(v21, v20, 0x1.fffff60000000p-2f), v20, 1.0f), v20, 1.0f), (int)v19));
      data1[v15] = v22 / acc5;
    }
  }
}
