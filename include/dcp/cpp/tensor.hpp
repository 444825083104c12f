/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file tensor.hpp
 * @brief Tensors, meshes and placements as values.
 */
#ifndef DCP_CPP_TENSOR_HPP
#define DCP_CPP_TENSOR_HPP

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "../mesh.h"
#include "../placement.h"
#include "../tensor.h"
#include "error.hpp"

namespace dcp
{

/** The dtype of an element type: `value`. May be specialized for types of the caller's, such as a
 * bfloat16. */
template <class Element> struct dtype_of;

/** @cond */
template <dcp_dtype Dtype> using dtype_constant = std::integral_constant<dcp_dtype, Dtype>;
template <> struct dtype_of<double> : dtype_constant<DCP_F64> {
};
template <> struct dtype_of<float> : dtype_constant<DCP_F32> {
};
template <> struct dtype_of<std::int64_t> : dtype_constant<DCP_I64> {
};
template <> struct dtype_of<std::int32_t> : dtype_constant<DCP_I32> {
};
template <> struct dtype_of<std::int16_t> : dtype_constant<DCP_I16> {
};
template <> struct dtype_of<std::int8_t> : dtype_constant<DCP_I8> {
};
template <> struct dtype_of<std::uint64_t> : dtype_constant<DCP_U64> {
};
template <> struct dtype_of<std::uint32_t> : dtype_constant<DCP_U32> {
};
template <> struct dtype_of<std::uint16_t> : dtype_constant<DCP_U16> {
};
template <> struct dtype_of<std::uint8_t> : dtype_constant<DCP_U8> {
};
template <> struct dtype_of<bool> : dtype_constant<DCP_BOOL> {
};
template <> struct dtype_of<std::complex<double>> : dtype_constant<DCP_C128> {
};
template <> struct dtype_of<std::complex<float>> : dtype_constant<DCP_C64> {
};
/** @endcond */

/** A row of extents (a shape, offsets, strides), borrowed for the call that it is passed to. Made
 * of `{4096, 4096}`, a vector or a pointer and a count. */
class extents
{
  public:
    extents(std::initializer_list<std::int64_t> values) : size_(values.size())
    {
        values_ = values.begin(); /* assigned: gcc would warn of the lifetime of what is kept */
    }
    extents(const std::vector<std::int64_t> &values) : values_(values.data()), size_(values.size())
    {
    }
    extents(const std::int64_t *values, std::size_t size) : values_(values), size_(size)
    {
    }

    std::size_t size() const noexcept
    {
        return size_;
    }
    const std::int64_t *begin() const noexcept
    {
        return values_;
    }
    const std::int64_t *end() const noexcept
    {
        return values_ + size_;
    }

  private:
    const std::int64_t *values_ = nullptr;
    std::size_t size_;
};

/** A dcp_placement: how one dimension of a mesh divides a tensor. */
using placement = dcp_placement;

/** The dimension of the mesh divides dimension @p dim of the tensor; negative counts from the
 * end. */
inline placement shard(std::int32_t dim)
{
    return dcp_shard(dim);
}
/** All ranks of the dimension hold the same. */
inline placement replicate()
{
    return dcp_replicate();
}
/** PyTorch's _StridedShard. */
inline placement strided_shard(std::int32_t dim, std::int64_t split_factor)
{
    return dcp_strided_shard(dim, split_factor);
}

/** A dcp_mesh: an n-dimensional array of ranks, seen from one of them. */
struct mesh : dcp_mesh {
    mesh() : dcp_mesh{}
    {
    }
    /** @param own position of this rank in the row-major mesh, -1 if it is not part of it.
     * @throw error DCP_ERR_ARGUMENT for more than DCP_MAX_MESH_DIMS dimensions. */
    mesh(extents dims, std::int64_t own) : dcp_mesh{}
    {
        if (dims.size() > DCP_MAX_MESH_DIMS)
            throw error(DCP_ERR_ARGUMENT, "a mesh of " + std::to_string(dims.size()) +
                                              " dimensions, of which it may have " +
                                              std::to_string(DCP_MAX_MESH_DIMS));
        ndim = static_cast<std::int32_t>(dims.size());
        std::copy(dims.begin(), dims.end(), shape);
        rank = own;
    }
};

/**
 * A dcp_tensor: one chunk of one tensor, and the memory that holds it, which stays the caller's.
 * Its fields are those of C; the functions here set several at a time, and can be chained.
 */
struct tensor : dcp_tensor {
    tensor() : dcp_tensor{}
    {
    }
    tensor(const dcp_tensor &other) : dcp_tensor(other)
    {
    }
    /** The whole of a tensor. @param memory borrowed; NULL in a load: memory is allocated.
     * @throw error DCP_ERR_ARGUMENT for more than DCP_MAX_DIMS dimensions. */
    tensor(dcp_dtype element, extents shape, void *memory = nullptr) : dcp_tensor{}
    {
        dtype = element;
        ndim = static_cast<std::int32_t>(std::min<std::size_t>(shape.size(), DCP_MAX_DIMS + 1));
        fill(global_shape, shape, "shape");
        data = memory;
    }
    /** The same, with the dtype of the memory. */
    template <class Element, class = std::enable_if_t<!std::is_void_v<Element>>>
    tensor(Element *memory, extents shape) : tensor(dtype_of<Element>::value, shape, memory)
    {
    }

    /** Makes it the chunk of this rank, by dcp_mesh_shard(). @param placements one for each
     * dimension of the mesh. */
    tensor &shard(const dcp_mesh &mesh, std::initializer_list<placement> placements)
    {
        if (mesh.ndim < 0 || placements.size() != static_cast<std::size_t>(mesh.ndim))
            throw error(DCP_ERR_ARGUMENT, std::to_string(placements.size()) +
                                              " placements on a mesh of " +
                                              std::to_string(mesh.ndim) + " dimensions");
        check(dcp_mesh_shard(&mesh, this, placements.begin()));
        return *this;
    }
    /** Makes it the box that begins at @p begin and has @p extent elements. */
    tensor &box(extents begin, extents extent)
    {
        fill(offsets, begin, "offsets");
        fill(sizes, extent, "sizes");
        sharded = true;
        return *this;
    }
    /** How the chunk lies in memory, in elements; without, it is row-major and dense. */
    tensor &stride(extents steps)
    {
        fill(strides, steps, "strides");
        strided = true;
        return *this;
    }
    /** Where its memory is. */
    tensor &on(const dcp_device &where)
    {
        device = where;
        return *this;
    }
    /** Its memory. */
    tensor &in(void *memory)
    {
        data = memory;
        return *this;
    }

    /** @return elements of the chunk. */
    std::int64_t count() const noexcept
    {
        std::int64_t elements = 1;
        for (std::int32_t i = 0; i < ndim; i++)
            elements *= sharded ? sizes[i] : global_shape[i];
        return elements;
    }

  private:
    void fill(std::int64_t (&into)[DCP_MAX_DIMS], extents values, const char *what)
    {
        if (values.size() > DCP_MAX_DIMS || values.size() != static_cast<std::size_t>(ndim))
            throw error(DCP_ERR_ARGUMENT, std::to_string(values.size()) + " " + what + " of " +
                                              std::to_string(ndim) + " dimensions (at most " +
                                              std::to_string(DCP_MAX_DIMS) + ")");
        std::copy(values.begin(), values.end(), into);
    }
};

} // namespace dcp

#endif
