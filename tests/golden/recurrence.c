void s_101_100_n2(float *data0, float arg1) {
  for (int64_t i1 = 0; i1 < 101; i1++) {
    data0[i1] = 0.0f;
  }
  for (int64_t i2 = 0; i2 < 100; i2++) {
    float v3 = data0[i2];
    data0[i2 + 1] = (v3 * 0.5f) + arg1;
  }
}
