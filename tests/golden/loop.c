void E_1000(float *data0) {
  for (int64_t i1 = 0; i1 < 1000; i1++) {
    data0[i1] = (float)i1;
  }
}
