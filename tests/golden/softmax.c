#define maximum(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))

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
      float v8 = ((89.0f < v7) ? 89.0f : v7);
      float v9 = ((v8 < -105.0f) ? -105.0f : v8);
      float v10 = (fmaf(v9, 0x1.7154760000000p+0f, 12582912.0f) - 12582912.0f);
      float v11 = fmaf(v10, -0x1.7f7d1c0000000p-20f, fmaf(v10, -0x1.62e4000000000p-1f, v9));
      float v12 = fmaf(fmaf(fmaf(0x1.6940000000000p-10f, v11, 0x1.125edc0000000p-7f), v11, 0x1.555b5a0000000p-5f), v11, 0x1.5554500000000p-3f);
      acc5 = (acc5 + ldexpf(fmaf(fmaf(fmaf(v12, v11, 0x1.fffff60000000p-2f), v11, 1.0f), v11, 1.0f), (int)v10));
    }
    for (int64_t i13 = 0; i13 < 4; i13++) {
      int64_t v14 = (v2 + i13);
      float v15 = (data0[v14] - acc3);
      float v16 = ((89.0f < v15) ? 89.0f : v15);
      float v17 = ((v16 < -105.0f) ? -105.0f : v16);
      float v18 = (fmaf(v17, 0x1.7154760000000p+0f, 12582912.0f) - 12582912.0f);
      float v19 = fmaf(v18, -0x1.7f7d1c0000000p-20f, fmaf(v18, -0x1.62e4000000000p-1f, v17));
      float v20 = fmaf(fmaf(fmaf(0x1.6940000000000p-10f, v19, 0x1.125edc0000000p-7f), v19, 0x1.555b5a0000000p-5f), v19, 0x1.5554500000000p-3f);
      data1[v14] = ldexpf(fmaf(fmaf(fmaf(v20, v19, 0x1.fffff60000000p-2f), v19, 1.0f), v19, 1.0f), (int)v18) / acc5;
    }
  }
}
