//! The devices that can be emulated, with the numbers of real ones.
//!
//! One well-known card for each architecture and not one number at a time: limits come in sets (shared memory, threads for each
//! multiprocessor, clusters), and a program that runs within a set that exists will run somewhere.

use crate::fault::Fault;

/// A kind of device.
#[derive(Debug, PartialEq, Eq)]
pub struct Model {
    /// `sm_80`
    pub arch_name: &'static str,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// What the driver calls it.
    pub name: &'static str,
    /// Multiprocessors.
    pub sms: u32,
    /// Bytes of memory of the real one.
    pub memory: u64,
    /// Shared memory a block may have without asking.
    pub shared_per_block: u32,
    /// Shared memory a block may have after `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
    pub shared_opt_in: u32,
    /// Shared memory of a multiprocessor.
    pub shared_per_sm: u32,
    /// Of that, what the system takes for each block.
    pub shared_reserved: u32,
    /// Threads resident on a multiprocessor.
    pub threads_per_sm: u32,
    /// Blocks resident on a multiprocessor.
    pub blocks_per_sm: u32,
    /// Second-level cache in bytes.
    pub l2: u32,
    /// Of that, what can be set aside.
    pub l2_persisting: u32,
    /// Clock in kHz.
    pub clock: u32,
    /// Memory clock in kHz.
    pub memory_clock: u32,
    /// Memory bus in bits.
    pub bus: u32,
    /// Copy engines.
    pub copy_engines: u32,
    /// Single over double precision.
    pub double_ratio: u32,
}

/// Registers of a multiprocessor, and the most that one block may have: the same for all models here. (sm_37 has twice as many, and on sm_53
/// and sm_62 a block gets half.)
pub const REGISTERS: u32 = 65536;
/// Threads of a block.
pub const BLOCK_THREADS: u32 = 1024;
/// Extents of a block.
pub const BLOCK: [u32; 3] = [1024, 1024, 64];
/// Extents of a grid.
pub const GRID: [u32; 3] = [0x7fff_ffff, 65535, 65535];
/// Bytes of constant memory of a module.
pub const CONSTANT_BYTES: u64 = 65536;

/// All models, oldest first.
pub static MODELS: [Model; 9] = [
    Model {
        arch_name: "sm_35",
        capability: (3, 5),
        name: "Tesla K40c (ptx-emulator)",
        sms: 15,
        memory: 12 << 30,
        shared_per_block: 49152,
        shared_opt_in: 49152,
        shared_per_sm: 49152,
        shared_reserved: 0,
        threads_per_sm: 2048,
        blocks_per_sm: 16,
        l2: 1_572_864,
        l2_persisting: 0,
        clock: 745_000,
        memory_clock: 3_004_000,
        bus: 384,
        copy_engines: 2,
        double_ratio: 3,
    },
    Model {
        arch_name: "sm_50",
        capability: (5, 0),
        name: "NVIDIA GeForce GTX 750 Ti (ptx-emulator)",
        sms: 5,
        memory: 2 << 30,
        shared_per_block: 49152,
        shared_opt_in: 49152,
        shared_per_sm: 65536,
        shared_reserved: 0,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        l2: 2 << 20,
        l2_persisting: 0,
        clock: 1_084_500,
        memory_clock: 2_700_000,
        bus: 128,
        copy_engines: 1,
        double_ratio: 32,
    },
    Model {
        arch_name: "sm_61",
        capability: (6, 1),
        name: "NVIDIA GeForce GTX 1080 (ptx-emulator)",
        sms: 20,
        memory: 8 << 30,
        shared_per_block: 49152,
        shared_opt_in: 49152,
        shared_per_sm: 98304,
        shared_reserved: 0,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        l2: 2 << 20,
        l2_persisting: 0,
        clock: 1_733_500,
        memory_clock: 5_005_000,
        bus: 256,
        copy_engines: 2,
        double_ratio: 32,
    },
    Model {
        arch_name: "sm_75",
        capability: (7, 5),
        name: "Tesla T4 (ptx-emulator)",
        sms: 40,
        memory: 15 << 30,
        shared_per_block: 49152,
        shared_opt_in: 65536,
        shared_per_sm: 65536,
        shared_reserved: 0,
        threads_per_sm: 1024,
        blocks_per_sm: 16,
        l2: 4 << 20,
        l2_persisting: 0,
        clock: 1_590_000,
        memory_clock: 5_001_000,
        bus: 256,
        copy_engines: 3,
        double_ratio: 32,
    },
    Model {
        arch_name: "sm_80",
        capability: (8, 0),
        name: "NVIDIA A100-SXM4-40GB (ptx-emulator)",
        sms: 108,
        memory: 40 << 30,
        shared_per_block: 49152,
        shared_opt_in: 166_912,
        shared_per_sm: 167_936,
        shared_reserved: 1024,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        l2: 40 << 20,
        l2_persisting: 30 << 20,
        clock: 1_410_000,
        memory_clock: 1_215_000,
        bus: 5120,
        copy_engines: 3,
        double_ratio: 2,
    },
    Model {
        arch_name: "sm_86",
        capability: (8, 6),
        name: "NVIDIA GeForce RTX 3090 (ptx-emulator)",
        sms: 82,
        memory: 24 << 30,
        shared_per_block: 49152,
        shared_opt_in: 101_376,
        shared_per_sm: 102_400,
        shared_reserved: 1024,
        threads_per_sm: 1536,
        blocks_per_sm: 16,
        l2: 6 << 20,
        l2_persisting: 4_325_376,
        clock: 1_695_000,
        memory_clock: 9_751_000,
        bus: 384,
        copy_engines: 2,
        double_ratio: 64,
    },
    Model {
        arch_name: "sm_89",
        capability: (8, 9),
        name: "NVIDIA GeForce RTX 4090 (ptx-emulator)",
        sms: 128,
        memory: 24 << 30,
        shared_per_block: 49152,
        shared_opt_in: 101_376,
        shared_per_sm: 102_400,
        shared_reserved: 1024,
        threads_per_sm: 1536,
        blocks_per_sm: 24,
        l2: 72 << 20,
        l2_persisting: 49_545_216,
        clock: 2_520_000,
        memory_clock: 10_501_000,
        bus: 384,
        copy_engines: 2,
        double_ratio: 64,
    },
    Model {
        arch_name: "sm_90",
        capability: (9, 0),
        name: "NVIDIA H100 80GB HBM3 (ptx-emulator)",
        sms: 132,
        memory: 80 << 30,
        shared_per_block: 49152,
        shared_opt_in: 232_448,
        shared_per_sm: 233_472,
        shared_reserved: 1024,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        l2: 50 << 20,
        l2_persisting: 32_768_000,
        clock: 1_980_000,
        memory_clock: 2_619_000,
        bus: 5120,
        copy_engines: 3,
        double_ratio: 2,
    },
    Model {
        arch_name: "sm_120",
        capability: (12, 0),
        name: "NVIDIA GeForce RTX 5090 (ptx-emulator)",
        sms: 170,
        memory: 32 << 30,
        shared_per_block: 49152,
        shared_opt_in: 101_376,
        shared_per_sm: 102_400,
        shared_reserved: 1024,
        threads_per_sm: 1536,
        blocks_per_sm: 24,
        l2: 96 << 20,
        l2_persisting: 62_914_560,
        clock: 2_407_000,
        memory_clock: 14_001_000,
        bus: 512,
        copy_engines: 2,
        double_ratio: 64,
    },
];

impl Model {
    /// The model for `sm_80` and its like.
    #[must_use]
    pub fn find(arch_name: &str) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.arch_name == arch_name)
    }

    /// 80 for `sm_80`.
    #[must_use]
    pub fn arch(&self) -> u32 {
        self.capability.0 * 10 + self.capability.1
    }

    /// Attribute `attribute` (`CUdevice_attribute`) of the device at `ordinal`; `None` for a number no driver of this time knows.
    #[must_use]
    pub fn attribute(&self, attribute: i32, ordinal: u32) -> Option<i32> {
        let pascal = u32::from(self.arch() >= 60);
        let ampere = u32::from(self.arch() >= 80);
        let hopper = u32::from(self.arch() >= 90);
        let value = match attribute {
            1..=3 => BLOCK_THREADS,                // MAX_THREADS_PER_BLOCK, MAX_BLOCK_DIM_X, _Y
            4 => BLOCK[2],                         // MAX_BLOCK_DIM_Z
            5 => GRID[0],                          // MAX_GRID_DIM_X
            6 | 7 => GRID[1],                      // MAX_GRID_DIM_Y, _Z
            8 => self.shared_per_block,            // MAX_SHARED_MEMORY_PER_BLOCK
            9 => CONSTANT_BYTES as u32,            // TOTAL_CONSTANT_MEMORY
            10 => 32,                              // WARP_SIZE
            11 => i32::MAX as u32,                 // MAX_PITCH
            12 | 82 => REGISTERS,                  // MAX_REGISTERS_PER_BLOCK, _PER_MULTIPROCESSOR
            13 => self.clock,                      // CLOCK_RATE
            14 => 512,                             // TEXTURE_ALIGNMENT
            15 => 1,                               // GPU_OVERLAP
            16 => self.sms,                        // MULTIPROCESSOR_COUNT
            17 | 18 => 0,                          // KERNEL_EXEC_TIMEOUT, INTEGRATED
            19 => 1,                               // CAN_MAP_HOST_MEMORY
            20 => 0,                               // COMPUTE_MODE
            21..=30 | 42..=49 | 52..=74 | 77 => 0, // textures and surfaces: there are none here
            31 => 1,                               // CONCURRENT_KERNELS
            32 => 0,                               // ECC_ENABLED
            33 => ordinal + 1,                     // PCI_BUS_ID
            34 | 50 => 0,                          // PCI_DEVICE_ID, PCI_DOMAIN_ID
            35 => 0,                               // TCC_DRIVER
            36 => self.memory_clock,               // MEMORY_CLOCK_RATE
            37 => self.bus,                        // GLOBAL_MEMORY_BUS_WIDTH
            38 => self.l2,                         // L2_CACHE_SIZE
            39 => self.threads_per_sm,             // MAX_THREADS_PER_MULTIPROCESSOR
            40 => self.copy_engines,               // ASYNC_ENGINE_COUNT
            41 => 1,                               // UNIFIED_ADDRESSING
            51 => 32,                              // TEXTURE_PITCH_ALIGNMENT
            75 => self.capability.0,               // COMPUTE_CAPABILITY_MAJOR
            76 => self.capability.1,               // COMPUTE_CAPABILITY_MINOR
            78 => 1,                               // STREAM_PRIORITIES_SUPPORTED
            79 | 80 => 1,                          // GLOBAL_, LOCAL_L1_CACHE_SUPPORTED
            81 => self.shared_per_sm,              // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
            83 => 0,                               // MANAGED_MEMORY: not emulated, and said so
            84 | 85 => 0,                          // MULTI_GPU_BOARD, _GROUP_ID
            86 => 0,                               // HOST_NATIVE_ATOMIC_SUPPORTED
            87 => self.double_ratio,               // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
            88 | 89 | 100 => 0,                    // pageable and managed access
            90 => pascal,                          // COMPUTE_PREEMPTION_SUPPORTED
            91 => pascal,                          // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
            92..=94 => 1,                          // stream memory operations
            95 => pascal,                          // COOPERATIVE_LAUNCH
            96 => 0,                               // COOPERATIVE_MULTI_DEVICE_LAUNCH
            97 => self.shared_opt_in,              // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
            98 => 0,                               // CAN_FLUSH_REMOTE_WRITES
            99 => 1,                               // HOST_REGISTER_SUPPORTED
            101 => 0,                              // DIRECT_MANAGED_MEM_ACCESS_FROM_HOST
            102..=105 => 0,                        // virtual memory management and its handles
            106 => self.blocks_per_sm,             // MAX_BLOCKS_PER_MULTIPROCESSOR
            107 => 0,                              // GENERIC_COMPRESSION_SUPPORTED
            108 => self.l2_persisting,             // MAX_PERSISTING_L2_CACHE_SIZE
            109 => ampere * 134_213_632,           // MAX_ACCESS_POLICY_WINDOW_SIZE
            110 => 0,                              // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
            111 => self.shared_reserved,           // RESERVED_SHARED_MEMORY_PER_BLOCK
            112 => 0,                              // SPARSE_CUDA_ARRAY_SUPPORTED
            113 => 1,                              // READ_ONLY_HOST_REGISTER_SUPPORTED
            114 => 0,                              // TIMELINE_SEMAPHORE_INTEROP_SUPPORTED
            115 => 1,                              // MEMORY_POOLS_SUPPORTED
            116..=119 => 0,                        // GPUDirect RDMA, pool handle types
            120 => hopper,                         // CLUSTER_LAUNCH
            121 => 0,                              // DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
            122..=124 => 1,                        // stream memory operations, version 2
            125 => 0,                              // DMA_BUF_SUPPORTED
            126..=133 => 0,                        // IPC, memory sync domains, tensor maps, fabric, multicast
            134..=148 => 0,                        // NUMA, MPS, host allocations of managed memory
            _ => return None,
        };
        i32::try_from(value).ok()
    }

    /// The device's 16 bytes of identity: the same in every process.
    #[must_use]
    pub fn uuid(&self, ordinal: u32) -> [u8; 16] {
        let mut uuid = *b"ptx-emulator\0\0\0\0";
        uuid[12] = u8::try_from(self.arch()).unwrap_or(0);
        uuid[15] = u8::try_from(ordinal).unwrap_or(u8::MAX);
        uuid
    }
}

/// Refuses a target that the device does not run: `sm_90a` runs on 9.0 alone, `sm_80` on everything from 8.0 on.
pub(crate) fn runs_target(arch: u32, target: &str) -> Result<(), Fault> {
    let refuse = |message: String| {
        Err(Fault { kind: crate::fault::Kind::Unsupported, message, site: None, other: None })
    };
    let Some(word) = target.strip_prefix("sm_").or_else(|| target.strip_prefix("compute_")) else {
        return refuse(format!("`.target {target}` names no architecture"));
    };
    let digits = word.trim_end_matches(['a', 'f']);
    let Ok(number) = digits.parse::<u32>() else {
        return refuse(format!("`.target {target}` names no architecture"));
    };
    let fits = match word.strip_prefix(digits) {
        Some("a") => number == arch,
        Some("f") => number / 10 == arch / 10 && number <= arch,
        _ => number <= arch,
    };
    if fits { Ok(()) } else { refuse(format!("PTX for {target} does not run on a device of sm_{arch}")) }
}

#[cfg(test)]
mod tests {
    use super::{MODELS, Model, runs_target};

    #[test]
    fn limits_hold_together() {
        for model in &MODELS {
            assert_eq!(Model::find(model.arch_name), Some(model));
            assert_eq!(model.arch_name, format!("sm_{}", model.arch()));
            assert!(model.shared_opt_in >= model.shared_per_block);
            assert!(model.shared_per_sm >= model.shared_opt_in + model.shared_reserved);
            assert_eq!(model.attribute(75, 0), Some(model.capability.0 as i32));
            assert_eq!(model.attribute(39, 0), Some(model.threads_per_sm as i32));
            assert_eq!(model.attribute(9999, 0), None);
        }
    }

    #[test]
    fn smaller_relatives_are_there() {
        // As much shared memory as sm_89 has, which is less than that of sm_80.
        let [small, next, large] = ["sm_86", "sm_89", "sm_80"].map(|name| Model::find(name).expect(name));
        assert_eq!((small.shared_per_sm, small.shared_opt_in), (next.shared_per_sm, next.shared_opt_in));
        assert!(small.shared_opt_in < large.shared_opt_in && small.blocks_per_sm < next.blocks_per_sm);
    }

    #[test]
    fn targets_run_where_they_may() {
        assert!(runs_target(80, "sm_80").is_ok());
        assert!(runs_target(89, "sm_80").is_ok());
        assert!(runs_target(80, "sm_90").is_err());
        assert!(runs_target(90, "sm_90a").is_ok());
        assert!(runs_target(120, "sm_90a").is_err(), "architecture-specific");
        assert!(runs_target(120, "sm_120f").is_ok());
        assert!(runs_target(120, "neon").is_err());
    }
}
