// hipBLAS's matrix products, as plain loops over column-major matrices.
#pragma once
#include <complex>
#include <cstdio>

namespace blas {
constexpr int NONE = 111, CONJUGATE = 113;                             // hipblasOperation_t; 112 is the plain transpose
template <class T> T conjugate(T x) { return x; }
template <class R> std::complex<R> conjugate(std::complex<R> x) { return std::conj(x); }

template <class T> size_t extent(int rows, int columns, int leading) { return ((size_t)leading * (columns - 1) + rows) * sizeof(T); }

template <class T> struct Matrix {                                     // op(matrix), rows x columns
  const T* data;
  int leading, operation;
  size_t bytes(int rows, int columns) const {
    return operation == NONE ? extent<T>(rows, columns, leading) : extent<T>(columns, rows, leading);
  }
  template <class A> A at(int row, int column) const {
    if (operation == NONE) return A(data[row + (size_t)column * leading]);
    A value = A(data[column + (size_t)row * leading]);
    return operation == CONJUGATE ? conjugate(value) : value;
  }
};

// c = alpha a b + beta c, computed in A.
template <class A, class T> void multiply(int m, int n, int k, A alpha, Matrix<T> a, Matrix<T> b, A beta, T* c, int leading) {
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) {
      A sum = A(0);
      for (int q = 0; q < k; ++q) sum += a.template at<A>(i, q) * b.template at<A>(q, j);
      T& out = c[i + (size_t)j * leading];
      out = beta == A(0) ? T(alpha * sum) : T(alpha * sum + beta * A(out));      // beta 0: what is there is not read
    }
}
}  // namespace blas
