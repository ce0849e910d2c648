//! What a driver has and this one does not: refused with `CUDA_ERROR_NOT_SUPPORTED`, so that a program is told and can go another way.
//!
//! They take no arguments here: in the C calling conventions of the platforms we build for the caller removes what it passed.
#![allow(unsafe_code)]

use super::entry::api;
use crate::runtime::{Code, Result};

fn not_emulated(what: &str) -> Result<()> {
    Code::NOT_SUPPORTED.error(format!("{what} not emulated"))
}

api! {
    fn cuUserObjectCreate(_m) { not_emulated("objects that graphs own are") }

    fn cuUserObjectRetain(_m) { not_emulated("objects that graphs own are") }

    fn cuUserObjectRelease(_m) { not_emulated("objects that graphs own are") }

    fn cuGraphRetainUserObject(_m) { not_emulated("objects that graphs own are") }

    fn cuGraphReleaseUserObject(_m) { not_emulated("objects that graphs own are") }

    fn cuLinkCreate_v2(_m) { not_emulated("linking device code is") }

    fn cuLinkAddData_v2(_m) { not_emulated("linking device code is") }

    fn cuLinkAddFile_v2(_m) { not_emulated("linking device code is") }

    fn cuLinkComplete(_m) { not_emulated("linking device code is") }

    fn cuLinkDestroy(_m) { not_emulated("linking device code is") }

    fn cuImportExternalMemory(_m) { not_emulated("memory shared with other programs is") }

    fn cuExternalMemoryGetMappedBuffer(_m) { not_emulated("memory shared with other programs is") }

    fn cuDestroyExternalMemory(_m) { not_emulated("memory shared with other programs is") }

    fn cuImportExternalSemaphore(_m) { not_emulated("memory shared with other programs is") }

    fn cuSignalExternalSemaphoresAsync(_m) { not_emulated("memory shared with other programs is") }

    fn cuWaitExternalSemaphoresAsync(_m) { not_emulated("memory shared with other programs is") }

    fn cuDestroyExternalSemaphore(_m) { not_emulated("memory shared with other programs is") }

    fn cuIpcGetMemHandle(_m) { not_emulated("memory shared with other programs is") }

    fn cuIpcOpenMemHandle_v2(_m) { not_emulated("memory shared with other programs is") }

    fn cuIpcCloseMemHandle(_m) { not_emulated("memory shared with other programs is") }

    fn cuIpcGetEventHandle(_m) { not_emulated("memory shared with other programs is") }

    fn cuIpcOpenEventHandle(_m) { not_emulated("memory shared with other programs is") }

    fn cuMemPoolExportToShareableHandle(_m) { not_emulated("memory shared with other programs is") }

    fn cuMemPoolImportFromShareableHandle(_m) { not_emulated("memory shared with other programs is") }

    fn cuMemPoolExportPointer(_m) { not_emulated("memory shared with other programs is") }

    fn cuMemPoolImportPointer(_m) { not_emulated("memory shared with other programs is") }

    fn cuMemAddressReserve(_m) { not_emulated("virtual memory management is") }

    fn cuMemAddressFree(_m) { not_emulated("virtual memory management is") }

    fn cuMemCreate(_m) { not_emulated("virtual memory management is") }

    fn cuMemRelease(_m) { not_emulated("virtual memory management is") }

    fn cuMemMap(_m) { not_emulated("virtual memory management is") }

    fn cuMemUnmap(_m) { not_emulated("virtual memory management is") }

    fn cuMemSetAccess(_m) { not_emulated("virtual memory management is") }

    fn cuMemGetAccess(_m) { not_emulated("virtual memory management is") }

    fn cuMemGetAllocationGranularity(_m) { not_emulated("virtual memory management is") }

    fn cuMemExportToShareableHandle(_m) { not_emulated("virtual memory management is") }

    fn cuMemImportFromShareableHandle(_m) { not_emulated("virtual memory management is") }

    fn cuMemRetainAllocationHandle(_m) { not_emulated("virtual memory management is") }

    fn cuMulticastCreate(_m) { not_emulated("virtual memory management is") }

    fn cuArrayCreate_v2(_m) { not_emulated("textures and arrays are") }

    fn cuArray3DCreate_v2(_m) { not_emulated("textures and arrays are") }

    fn cuArrayDestroy(_m) { not_emulated("textures and arrays are") }

    fn cuMipmappedArrayCreate(_m) { not_emulated("textures and arrays are") }

    fn cuTexObjectCreate(_m) { not_emulated("textures and arrays are") }

    fn cuTexObjectDestroy(_m) { not_emulated("textures and arrays are") }

    fn cuSurfObjectCreate(_m) { not_emulated("textures and arrays are") }

    fn cuSurfObjectDestroy(_m) { not_emulated("textures and arrays are") }

    fn cuTensorMapEncodeTiled(_m) { not_emulated("textures and arrays are") }

    fn cuTensorMapEncodeIm2col(_m) { not_emulated("textures and arrays are") }

    fn cuGraphAddMemAllocNode(_m) { not_emulated("memory owned by graphs is") }

    fn cuGraphAddMemFreeNode(_m) { not_emulated("memory owned by graphs is") }

    fn cuGraphMemAllocNodeGetParams(_m) { not_emulated("memory owned by graphs is") }

    fn cuDeviceGraphMemTrim(_m) { not_emulated("memory owned by graphs is") }

    fn cuDeviceGetGraphMemAttribute(_m) { not_emulated("memory owned by graphs is") }

    fn cuDeviceSetGraphMemAttribute(_m) { not_emulated("memory owned by graphs is") }

    fn cuGraphAddChildGraphNode(_m) { not_emulated("such nodes of graphs are") }

    fn cuGraphAddEventRecordNode(_m) { not_emulated("such nodes of graphs are") }

    fn cuGraphAddEventWaitNode(_m) { not_emulated("such nodes of graphs are") }

    fn cuGraphAddBatchMemOpNode(_m) { not_emulated("such nodes of graphs are") }

    fn cuGraphAddNode_v2(_m) { not_emulated("such nodes of graphs are") }

    fn cuStreamBeginCaptureToGraph(_m) { not_emulated("such nodes of graphs are") }

    fn cuStreamUpdateCaptureDependencies(_m) { not_emulated("such nodes of graphs are") }

    fn cuStreamUpdateCaptureDependencies_v2(_m) { not_emulated("such nodes of graphs are") }

    fn cuStreamBatchMemOp_v2(_m) { not_emulated("such nodes of graphs are") }

    fn cuStreamWriteValue64_v2(_m) { not_emulated("such nodes of graphs are") }

    fn cuMemRangeGetAttribute(_m) { not_emulated("managed memory is") }

    fn cuMemRangeGetAttributes(_m) { not_emulated("managed memory is") }
}
