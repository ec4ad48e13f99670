#define maximum(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))

void r_2_2_100(const float *data0, float *data1) {
  for (int64_t i1 = 0; i1 < 2; i1++) {
    for (int64_t i2 = 0; i2 < 2; i2++) {
      float acc3 = 0.0f;
      for (int64_t i4 = 0; i4 < 100; i4++) {
        acc3 = fmaf(data0[(i1 * 100) + i4], data0[(i2 * 100) + i4], acc3);
      }
      data1[(i1 * 2) + i2] = maximum((acc3 + 1.0f), 0.0f);
    }
  }
}
