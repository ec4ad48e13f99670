#define minimum(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))
#define maximum(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))

void r_2_2_100(const float *data0, float *data1) {
  for (int64_t i1 = 0; i1 < 2; i1++) {
    for (int64_t i2 = 0; i2 < 2; i2++) {
      float acc3 = 0.0f;
      for (int64_t i4 = 0; i4 < 100; i4 += 64) {
        int64_t v5 = minimum((i4 + 64), 100);
        float acc6 = 0.0f;
        for (int64_t i7 = i4; i7 < v5; i7 += 8) {
          float acc8 = 0.0f;
          for (int64_t i9 = i7; i9 < minimum((i7 + 8), v5); i9++) {
            acc8 = fmaf(data0[(i1 * 100) + i9], data0[(i2 * 100) + i9], acc8);
          }
          acc6 = (acc6 + acc8);
        }
        acc3 = (acc3 + acc6);
      }
      data1[(i1 * 2) + i2] = maximum((acc3 + 1.0f), 0.0f);
    }
  }
}
