#define bits(to, from, x) ((union { from a; to b; }){.a = (x)}.b)

void E_12(const float *data0, float *data1) {
  for (int64_t i1 = 0; i1 < 12; i1++) {
    float v2 = data0[i1];
    int32_t v3 = bits(int32_t, float, v2);
    int32_t v4 = ((v3 + -1059760811) & -8388608);
    float v5 = (bits(float, int32_t, (v3 - v4)) - 1.0f);
    float v6 = (v5 * v5);
    float v7 = fmaf(fmaf(fmaf(-0x1.0ae0000000000p-3f, v6, -0x1.f198b20000000p-4f), v6, -0x1.55b36c0000000p-3f), v6, -0x1.fffe020000000p-3f);
    float v8 = fmaf(fmaf(fmaf(0x1.2080000000000p-3f, v6, 0x1.1e57400000000p-3f), v6, 0x1.99d8b20000000p-3f), v5, v7);
    float v9 = fmaf((float)v4, 0x1.62e4300000000p-24f, fmaf(fmaf(fmaf(v8, v5, 0x1.5554fa0000000p-2f), v5, -0.5f), v6, v5));
    float v10 = v9;
    if (2130706432 <= (bits(uint32_t, float, v2) + 4286578688)) {
      int32_t v11 = bits(int32_t, float, (v2 * 8388608.0f));
      int32_t v12 = ((v11 + -1059760811) & -8388608);
      float v13 = (bits(float, int32_t, (v11 - v12)) - 1.0f);
      float v14 = (v13 * v13);
      float v15 = fmaf(fmaf(fmaf(-0x1.0ae0000000000p-3f, v14, -0x1.f198b20000000p-4f), v14, -0x1.55b36c0000000p-3f), v14, -0x1.fffe020000000p-3f);
      float v16 = fmaf(fmaf(fmaf(0x1.2080000000000p-3f, v14, 0x1.1e57400000000p-3f), v14, 0x1.99d8b20000000p-3f), v13, v15);
      float v17 = fmaf((float)v12, 0x1.62e4300000000p-24f, fmaf(fmaf(fmaf(v16, v13, 0x1.5554fa0000000p-2f), v13, -0.5f), v14, v13));
      float v18 = ((v2 < 0.0f) ? NAN : ((v2 < 1.0f) ? ((v2 == 0.0f) ? -INFINITY : (v17 - 0x1.fe28040000000p+3f)) : v2));
      v10 = v18;
    }
    data1[i1] = v10;
  }
}
